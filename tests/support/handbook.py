"""The handbook of an invented company: many documents, and questions."""

from small_pdf import small_pdf

# Name of the file to its text.
FILES = {
    "travel/hotels.md": """# Hotels and meals

Whoever sleeps away from home for the company books through the travel desk
and stays below the limit of the city. Breakfast is part of the limit.

## Limits

| City | Limit a night | Dinner |
|------|---------------|--------|
| Oslo | 160 EUR | 38 EUR |
| Stavanger | 145 EUR | 36 EUR |
| Tallinn | 110 EUR | 27 EUR |
| Hamburg | 135 EUR | 33 EUR |

## Above the limit

During trade fairs rooms are dear. Silje Nordvik at the travel desk may then
allow a fifth more, if she is asked before the booking is made.
""",
    "travel/trains_and_flights.md": """# Trains and flights

We travel slowly where we can, and we all travel in the same class.

## Trains

Take the train for any journey of less than seven hours. The night train to
Oslo counts as one, and the company pays for a sleeping compartment of your
own.

## Flights

Flights are booked in economy at least eighteen days before departure. One
checked bag is paid for. Miles that an airline gives you stay yours, but they
must not decide which airline you choose.
""",
    "travel/mileage.md": """# Driving your own car

Sometimes only a car will do, for example when sample kettles have to reach a
shop on an island. You then receive 0.41 EUR for each kilometre, and 0.07 EUR
more for every colleague who rides along. Ferries and tunnels are paid on top
against a receipt. Parking fines are not. Write down the start, the end and
the reason of the trip on the same day; a claim without a reason goes back to
you. For more than 300 kilometres a day, rent a car instead.
""",
    "travel/expense_claims.md": """# Expense claims

What you have paid for the company comes back to you quickly if the claim is
complete.

## Sending a claim

Photograph each receipt and send it with the form in the tool Kvitto. Claims
arrive at the latest 45 days after the trip; later ones need a signature of
the finance director, Jorunn Haaland.

## Payment

Claims approved by Wednesday are paid on the following Friday. Receipts below
6 EUR may be missing, as long as you say what you bought.
""",
    "leave/annual_leave.md": """# Annual leave

Rest is part of the work, and managers see to it that everyone takes it.

## How much

Everybody has 27 days of holiday a year. From the year of your sixtieth
birthday there are five days more.

## Planning

Wishes for the summer are entered in the calendar by 15 March. Three weeks in
a row are a right between June and August.

## Left-over days

Up to eight unused days move into the next year. They lapse at the end of
April, unless illness kept you from taking them.
""",
    "leave/sick_leave.md": """# Sick leave

Stay at home when you are ill. Nobody is thanked for a cough at the assembly
line.

## Telling us

Send a message to your team leader before 8:30 on the first morning. The
nature of the illness is your own affair.

## Doctor's note

A note is needed from the fifth day on. Parents may stay with a sick child for
up to fourteen days in a calendar year.

## Coming back

After six weeks of absence Ingvild Brekkhus from human resources invites you
to plan an easy start with shorter days.
""",
    "leave/bereavement.md": """# When somebody dies

On the death of a partner, a parent or a child you are free for two weeks with
full wages. For grandparents, brothers and sisters it is four days, and for
other relatives and close friends the day of the funeral. You need not bring a
certificate. Your manager passes the news on only as far as you want. If you
would like to talk, the pastor of the seamen's church, Anders Lie, keeps an
hour free for our people every Monday afternoon, whatever they believe.
""",
    "leave/moving_day.md": """# Moving house

Those who move to another flat or house get one working day off, once every
three years. When the company asks you to move, say from Stavanger to Bergen,
you get three days, and the firm Fjordflytt carries your furniture at our
expense. Tell human resources the new address within a week, because wage
slips, tax papers and the Christmas parcel go there. Moving boxes can be
borrowed from the caretaker in the basement of the head office.
""",
    "pay/payday.md": """# Wages and wage slips

Wages come once a month, in the currency of the country where you work.

## Day of payment

The money reaches your bank on the 24th of each month. If that is a Saturday
or a Sunday, it comes on the Friday before.

## Mistakes

If a slip looks wrong, write to Bjarte Sandvik, who runs the payroll. He puts
mistakes above 50 EUR right within two days and smaller ones with the next
wages.

## Advances

Once a year you may ask for an advance of half a month.
""",
    "pay/overtime.md": """# Overtime and shifts

Overtime is the exception. It is agreed on beforehand and written into the
time sheet by the shift leader.

## Supplements

| Work | Supplement |
|------|------------|
| Weekday evening | 30 percent |
| Night shift | 55 percent |
| Saturday | 65 percent |
| Public holiday | 120 percent |

## Limits

Nobody works more than ten hours on one day, or more than 180 hours of
overtime in a year. Instead of money you may take the hours off, within the
same quarter. Apprentices do no overtime at all.
""",
    "pay/pension.md": """# Pension

Besides the pension of the state there is one of the company. We pay
6.5 percent of your wages into the fund Havbris, from your first month on, and
you add two percent yourself. You choose between a careful and a bold mixture of
shares and bonds, and can change once every January. Whoever leaves takes the
money along. Advice costs nothing: Marit Oppedal of the fund visits the head
office on the first Tuesday of each quarter, and the factories twice a year.
""",
    "it/passwords.md": """# Passwords

A good password is long, and used in one place only.

## Rules

A password has at least sixteen characters. It does not expire, but it is
changed at once if someone else may have seen it. The program Nokkel keeps
your passwords, and everybody has a licence for it.

## Locked out

After seven wrong tries the account is shut for half an hour. In a hurry, go
to the help desk in person with your badge. Petter Ullaland and his team never
ask for a password, neither by mail nor on the phone.
""",
    "it/laptops.md": """# Laptops

Office staff choose between a light laptop of 13 inches and a heavy one of 16.
A machine is replaced after four years. You may then buy the old one for 90
EUR, with an empty disk. Draughtsmen in product design get a workstation
instead, because the drawing program wants a strong graphics card. Do not
leave a laptop in a parked car, not even in the boot. A stolen one is reported
within the hour, so that the help desk can erase it from afar.
""",
    "it/remote_access.md": """# Working from home

You may work from home on two days a week, if your team leader agrees. The
office network is reached through the program Tunnelen, which asks for a code
from the small blue key that was given to you on the first day. A lost key
costs nothing, but has to be blocked by calling extension 4410. Outside the
European Economic Area the access is closed. For a desk chair at home the
company adds 200 EUR, once, against the bill.
""",
    "it/printers.md": """# Printers

There is one printer on each floor of the head office, and one in the room of
the foreman in either factory. Hold your badge against the reader and your
pages come out; what nobody fetches is deleted after 36 hours. Colour is for
catalogues and drawings. Toner stands in the grey cupboard beside the lift.
When paper is stuck, open flap B and pull gently towards you. If that does not
help, the caretaker Rune Espeland knows the machines better than anyone in IT.
""",
    "security/badges.md": """# Badges

The badge opens doors, starts printers and pays in the canteen.

## Wearing it

It is worn where others can see it, in offices and factories alike. Green
badges are for staff, orange ones for temporary workers.

## Lost badges

Report a loss to Olav Granheim, the head of security, on the same day. The
first new badge is free, and each further one costs 15 EUR.

## Forgotten badges

The reception lends you a card for the day against your signature.
""",
    "security/visitors.md": """# Visitors

Guests are announced by noon on the day before, with their name and company.
They sign in at the reception, get a white sticker and are met there by their
host, who stays with them until they leave. Photographs are forbidden in the
development workshop on the third floor, and phones stay in the lockers in
front of its door. School classes come on Thursdays, at most twenty children
at a time. Journalists are looked after by Astrid Fauske, who speaks for the
company.
""",
    "canteen/bergen.md": """# Canteen in Bergen

The canteen of the head office is on the roof and has a view of the harbour.

## Opening hours

Lunch is served from 11:15 to 13:30. Coffee, waffles and soup can be had until
three o'clock.

## Prices

A warm lunch costs 5.20 EUR, and the soup 3.10 EUR. It is paid with the badge
and taken from the next wages.

## Food

Sunniva Rolland and her two cooks serve fish on Tuesdays and Fridays. A dish
without meat is there every day. Allergies are written on the blue list beside
the till.
""",
    "canteen/stavanger.md": """# Canteen in Stavanger

The office in Stavanger is too small for a kitchen of its own. It shares the
canteen of the shipyard across the street, where our people eat from
11:45 to 12:45. The cook there is Emil Kvassheim, and his fish cakes are known
in the whole quarter. A warm lunch costs 6.40 EUR; tickets are sold in books
of ten by Torunn at the front desk. On Mondays the kitchen is closed, and the
company puts bread, cheese and fruit on the long table.
""",
    "company/history.md": """# How the company began

Northwind Kettles is older than most of the houses around its head office.

## The boat shed

The first workshop opened in 1958 in a boat shed in Sandviken. It had one
lathe, bought from a cannery that had gone out of business, and made eleven
kettles in its first week.

## The fire

In February 1974 the shed burned down. The moulds were saved by an apprentice,
Knut Birkeland, who threw them into the sea and dived for them in spring.

## Electric kettles

The first electric model left the works in 1981.
""",
    "company/founder_ragnhild.md": """# Ragnhild Aasmundsen

Ragnhild Aasmundsen, one of our two founders, was born in Odda as the daughter
of a coppersmith. She trained as a toolmaker and then studied in Gothenburg,
where she wrote her thesis on the noise of boiling water. The whistle with two
notes is her invention, and it is in every stove-top kettle to this day. She
led the workshop for thirty-one years and answered letters from customers
herself, by hand. Her tool chest stands in the entrance hall.
""",
    "company/founder_tobias.md": """# Tobias Vennesland

Tobias Vennesland, the other founder, came from a family of herring merchants
in Haugesund. He kept the books, sold the first kettles from a rowing boat,
and drew the goose that is still our mark. Before that he had been a purser on
a mail steamer. He insisted on paying suppliers within ten days, a rule that
we keep. After he retired he grew apples in Hardanger, and he left his shares
to a foundation that pays for the training of apprentices.
""",
    "products/fjell.md": """# Fjell

Fjell is our kettle for the stove and the camp fire. Its body is of copper,
tinned inside, with a handle of ash wood that folds down for the rucksack. It
holds 1.2 litres and weighs 640 grams. We have made it since 1963 with hardly
a change, only the lid was given a chain in 1990. The designer was the founder
Ragnhild herself. Fjell must not go into the dishwasher. Polish it with lemon
and salt, and have it tinned anew about every ten years.
""",
    "products/skarv.md": """# Skarv

Skarv is the kettle for cafes and offices. It is made of brushed steel with a
double wall, so that the outside stays cool to the touch, and holds 3.5 litres.
Two elements of 1500 watts bring it to the boil in under six minutes. It came
on the market in 2009 and was named after the cormorant, because of its long
spout. The lid is locked with a quarter turn. There is a version with a tap
for canteens, of which we sell about 900 a year.
""",
    "products/lyng.md": """# Lyng

Lyng, launched in 2016, is an enamelled kettle with a base that can be set to
five temperatures. For green tea choose 70 degrees, for coffee 94. It holds 1.6
litres. It is sold in heather, moss and slate; the heather one is by far the
most popular. The thermostat is in the foot and can be changed by the customer
with a coin. The drawing came from a competition among students, which was won
by Frida Myklebust, who now leads our design team.
""",
    "factories/askoy.md": """# The Askoy factory

Askoy, half an hour from the head office, makes all stove-top kettles.

## People and machines

The plant manager is Hallvard Tveiten. He leads 140 people in two shifts. The
oldest press, called Gamla, has been at work since the move to the island.

## Output

On a good day 820 kettles leave the line.

## Getting there

The company bus leaves from Bergen station at 6:20 and 13:40. The gate opens
with any green badge.
""",
    "factories/narva.md": """# The Narva factory

Narva in Estonia, bought in 2004 from a maker of lamps, builds the electric
kettles.

## People and machines

The plant manager is Kristiina Lepik. She leads 210 people in three shifts.
The hall has an enamelling oven that is never switched off between August and
the following June.

## Output

The three lines together make 2400 kettles a day.

## Getting there

Visitors fly to Tallinn and take the train. Rooms are kept at the guest house
beside the works.
""",
    "suppliers/steel.md": """# Steel and copper

Steel sheets come from the mill Hedlund Bruk in Sweden, in rolls of two tonnes,
every second Monday. A quarter of it is melted from scrap. Copper is bought
from Laszlo Metals in Hungary, who also take back our cuttings. Each roll is
tested for thickness before it is unloaded; more than 0.03 millimetres off the
order and the lorry goes home. Purchases above 40000 EUR are signed by two
people. The buyer for metals is Geir Solheim, at the Askoy plant.
""",
    "suppliers/heating_elements.md": """# Heating elements and switches

The elements of our electric kettles are wound by Brandt und Sohn in Kassel,
with whom we have worked since the beginning. Switches come from Orimo, a
cooperative near Porto. We keep a stock of nine weeks of both, since one late
ship in 2021 stopped the lines for twelve days. Samples of every delivery go
to the laboratory. The buyer for electrical parts is Piret Saar at the Narva
plant. A supplier is visited at least every other year.
""",
    "service/repair_prices.md": """# Repairs after the warranty

Kettles are worth mending, and we mend them at any age.

## Prices

| Repair | Price | Days |
|--------|-------|------|
| New whistle | 8 EUR | 3 |
| New lid | 12 EUR | 3 |
| New switch | 19 EUR | 5 |
| Tinning anew | 46 EUR | 14 |

## How it works

The customer sends the kettle at our cost and gets an offer before any work is
done. If an offer is turned down, the kettle goes back free of charge. The
workshop is led by Oddny Fjeldstad.
""",
    "shipping/delivery_times.md": """# Delivery times

Orders that arrive before 14:00 leave the warehouse on the same day.

## Times

| Country | Carrier | Working days |
|---------|---------|--------------|
| Norway | Postbud | 1 to 2 |
| Germany | Rotpfeil | 3 to 4 |
| France | Colibri | 4 to 6 |
| Japan | Seabird Air | 9 to 11 |

## Costs

Parcels within Norway are free above 75 EUR. Shops pay no freight from thirty
kettles on. Kettles travel in moulded pulp, without any plastic around them.
""",
    "quality/drop_test.md": """# Drop test

From every lot, six kettles are dropped on a slab of oak: three empty and three
full. The height is 85 centimetres, about that of a kitchen worktop. A kettle
has passed if the lid stays on, nothing leaks and the handle can still be used;
dents are allowed. If one fails, twelve more are dropped, and if another of
those fails, the lot is held back. The results go into the red book, which
Yngve Dalen checks every Friday.
""",
    "quality/boil_test.md": """# Boil test

A new electric model is boiled until it breaks. It has to last 15000 boilings
before it may be sold, which takes the test bench about four months. The water
is taken from the tap in Narva, which is hard, and is changed by a pump after
each round. A camera watches the switch. From the running production one kettle
a week joins the bench. The test engineer, Mihkel Roos, hangs the record holder
on the wall, a Skarv that would not die.
""",
    "office/meeting_rooms.md": """# Meeting rooms

The rooms of the head office are named after islands.

## Rooms

| Room | Floor | Seats |
|------|-------|-------|
| Fedje | 1 | 4 seats |
| Sotra | 2 | 10 seats |
| Bomlo | 2 | 16 seats |
| Utsira | 4 | 32 seats |

## Booking

Rooms are booked in the calendar. A room that is still empty ten minutes after
the start is free for anybody. Utsira has the only screen for calls with more
than one site. Wipe the board, and take the cups along when you go.
""",
    "office/dogs.md": """# Dogs in the office

Dogs are welcome in Bergen, though not in the factories or in the canteen.

## Conditions

A dog has to be vaccinated, insured and at least ten months old. Two dogs a
floor are the limit, so put yours on the list by the lift. The third floor is
kept free of them for people with allergies.

## Care

Bowls and towels are in the cupboard under the stairs. The list is kept by
Vilde Hatlestad, whose terrier Pepper was the first of them.
""",
    "office/bicycles.md": """# Bicycles

Every third colleague in Bergen comes by bicycle.

## Shed

The shed behind the head office has room for 64 bicycles and twelve sockets
for batteries. The code of its door changes each spring.

## Company bicycles

You may lease a bicycle through the company for three years. The instalments
are taken from your wages before tax, up to a price of 3800 EUR.

## Repairs

On the last Thursday of the month the mechanic Arvid Ness comes to the yard.
Spare tubes are free.
""",
    "people/parental_leave.html": """<!DOCTYPE html>
<html><head><title>Parental leave</title></head><body>
<nav>Home | People | Office</nav>
<h1>Parental leave</h1>
<p>Both parents may stay at home after a birth or an adoption, in whatever
order suits the family.</p>
<h2 id="length">Length</h2>
<p>Each parent has nineteen weeks, and a further sixteen are shared between
them as they like. Tell your manager three months ahead.</p>
<h2 id="pay">Pay</h2>
<p>The company adds to the money of the state so that you get 95 percent of
your wages.</p>
<h2 id="return">Return</h2>
<p>In the first half-year back you may shorten your day by an hour.</p>
<footer>Human resources</footer>
</body></html>
""",
    "people/study_leave.html": """<!DOCTYPE html>
<html><head><title>Study leave</title></head><body>
<nav>Home | People | Office</nav>
<h1>Study leave</h1>
<p>Whoever has been with us for three years may go away to study, and has a
place to come back to.</p>
<h2 id="length">Length</h2>
<p>Study leave lasts up to ten months. It may be split into two parts.</p>
<h2 id="pay">Pay</h2>
<p>During the leave you get 40 percent of your wages if the subject is of use
at work, and nothing otherwise. Fees for exams are paid in both cases.</p>
<h2 id="apply">Applying</h2>
<p>Letters go to Ingvild Brekkhus before the first of October.</p>
</body></html>
""",
    "products/tinde.html": """<!DOCTYPE html>
<html><head><title>Tinde</title></head><body>
<nav>Home | Products</nav>
<h1>Tinde</h1>
<p>Tinde is the travelling kettle, small enough for a coat pocket. It is made
of titanium and holds 0.5 litres. It has been on sale since 2019.</p>
<h2 id="power">Power</h2>
<p>It runs on 100 to 240 volts and comes with three plugs. The cable winds
into the base.</p>
<h2 id="care">Care</h2>
<p>Dry it before packing. The seal of silicone is changed every two years;
it carries part number T-308.</p>
<footer>Product desk, Bergen</footer>
</body></html>
""",
    "products/nordlys.html": """<!DOCTYPE html>
<html><head><title>Nordlys</title></head><body>
<nav>Home | Products</nav>
<h1>Nordlys</h1>
<p>Nordlys, the newest of the five kettles, appeared in 2022. The jug is of
borosilicate glass and holds 1.8 litres.</p>
<h2 id="light">Light</h2>
<p>A ring in the base glows green while the water warms and turns violet when
it boils. The ring can be switched off for good by holding the lever down for
eight seconds.</p>
<h2 id="prize">Prize</h2>
<p>It won the Golden Ladle at the kitchen fair in Cologne, and it is the only
model that we build to order.</p>
</body></html>
""",
    "service/warranty.html": """<!DOCTYPE html>
<html><head><title>Warranty</title></head><body>
<nav>Home | Service</nav>
<h1>Warranty</h1>
<p>We stand by what we make, and say so in plain words on the back of the
box.</p>
<h2 id="length">Length</h2>
<p>Electric kettles are under warranty for six years, and stove-top kettles
for twenty-five years, counted from the day on the receipt.</p>
<h2 id="not">Not covered</h2>
<p>Limescale, falls and the use in a trade are left out, apart from Skarv,
which was built for trade.</p>
<h2 id="proof">Proof</h2>
<p>Without a receipt, the number stamped under the handle is enough.</p>
</body></html>
""",
    "service/call_centre.html": """<!DOCTYPE html>
<html><head><title>Customer service</title></head><body>
<nav>Home | Service</nav>
<h1>Customer service</h1>
<p>Nine people in Stavanger answer calls, letters and messages in Norwegian,
English, German and Estonian.</p>
<h2 id="hours">Hours</h2>
<p>The lines are open on weekdays from 7:30 to 18:00, and on Saturdays in
December.</p>
<h2 id="answers">Answers</h2>
<p>A message is answered within four working hours. Staff may give away goods
worth up to 60 EUR to please a customer, without asking.</p>
<h2 id="lead">Lead</h2>
<p>The team is led by Dagny Vik.</p>
</body></html>
""",
    "benefits/sports_club.html": """<!DOCTYPE html>
<html><head><title>Sports club</title></head><body>
<nav>Home | Benefits</nav>
<h1>Sports club</h1>
<p>The club was started by the packers of Askoy, who wanted a reason to stay
on the island in the evening.</p>
<h2 id="fee">Fee</h2>
<p>Membership costs 25 EUR a year, and partners and children join for
nothing.</p>
<h2 id="groups">Groups</h2>
<p>There is rowing on Mondays, handball on Wednesdays and a walk up Ulriken
on the first Sunday of the month. The rowers own two boats, Dampen and
Floyten.</p>
<p>The chairman is Sindre Moe from the paint shop.</p>
</body></html>
""",
    "benefits/library.html": """<!DOCTYPE html>
<html><head><title>Library</title></head><body>
<nav>Home | Benefits</nav>
<h1>Library</h1>
<p>The library on the second floor grew out of a crate of novels that a
retired foreman left behind. Today it has about 5300 books.</p>
<h2 id="loans">Loans</h2>
<p>Books are lent for five weeks, and technical standards for three days.
There are no fines, but your name goes on the blackboard.</p>
<h2 id="wishes">Wishes</h2>
<p>Each month the librarian, Eldbjorg Risnes, buys four titles that colleagues
have wished for.</p>
</body></html>
""",
    "benefits/anniversaries.html": """<!DOCTYPE html>
<html><head><title>Anniversaries</title></head><body>
<nav>Home | Benefits</nav>
<h1>Anniversaries and birthdays</h1>
<p>We like people to stay, and we show it.</p>
<h2 id="service">Years of service</h2>
<p>After ten years you are given a kettle with your name engraved on it.
After twenty years there is a voyage along the coast for two. After thirty
there is a month of extra holiday.</p>
<h2 id="birthdays">Birthdays</h2>
<p>On round birthdays the team gets a marzipan cake from the bakery Solberg.
The day itself is free from the fiftieth on.</p>
</body></html>
""",
    "sustainability/old_kettles.html": """<!DOCTYPE html>
<html><head><title>Old kettles</title></head><body>
<nav>Home | Sustainability</nav>
<h1>Old kettles</h1>
<p>Anyone may hand in an old kettle, whoever made it, at our shop in the
Marken street or by post.</p>
<h2 id="reward">Reward</h2>
<p>In return there is a voucher for 10 EUR. Last year 7150 kettles were
handed in.</p>
<h2 id="next">What happens next</h2>
<p>Metal goes to the smelter and handles become pegs for coats. Parts that
still work are cleaned and used for repairs. The scheme is run by Nils
Overland.</p>
</body></html>
""",
    "training/induction.html": """<!DOCTYPE html>
<html><head><title>First weeks</title></head><body>
<nav>Home | Training</nav>
<h1>Your first weeks</h1>
<p>All newcomers, whatever their post, begin with two days at the assembly
line and build a kettle that they may keep.</p>
<h2 id="guide">Guide</h2>
<p>A colleague from another department is your guide for the first hundred
days. You have lunch together once a week, at the expense of the company.</p>
<h2 id="courses">Courses</h2>
<p>Courses on fire, data and lifting are finished within a month. Later on
every employee may spend 850 EUR a year on courses.</p>
</body></html>
""",
    "office/parking.html": """<!DOCTYPE html>
<html><head><title>Parking</title></head><body>
<nav>Home | Office</nav>
<h1>Parking</h1>
<p>Space in the middle of Bergen is scarce, so please come by bus, boat or
bicycle when you can.</p>
<h2 id="bergen">Bergen</h2>
<p>There are 22 places under the head office. They are drawn by lot every
half-year and cost 70 EUR a month. Parents of small children draw first.</p>
<h2 id="factories">Factories</h2>
<p>At both factories parking is free. Electric cars charge at the north wall,
for four hours at most. The lots are drawn by Rune Espeland.</p>
</body></html>
""",
    "notices/lost_property.txt": """LOST AND FOUND

Things that are found in the head office are brought to the reception and kept
in the oak chest for ten weeks. After that they are sold at the Christmas
bazaar, and the money goes to the lifeboat society.

At present the chest holds a left ski boot, three umbrellas, a pair of reading
glasses in a tartan case and a ukulele. Whoever misses something asks for
Turid Eikeland and describes it before the chest is opened.
""",
    "notices/summer_party.txt": """SUMMER PARTY

This year the party of all sites takes place on Saturday 14 June on the island
of Lysoen. The steamer Oster leaves from the fish market at 15:00 and comes
back after midnight. Colleagues from Narva are flown in and stay at the youth
hostel.

There will be a race of kettles: the first team to make its whistle sound over
an open fire wins the brass goose. Bring a jumper. Say by 20 May whether you
come, and with whom, to Liv Tangen.
""",
    "it/wifi.txt": """WIRELESS NETWORKS

There are three networks in every building.

NWK-Staff is for the machines of the company, and needs no password, as the
laptop carries a certificate. NWK-Guest is for visitors; the reception prints
a ticket that is good for 12 hours. NWK-Line is for the machines in the
factories and must not be used for anything else.

If the signal is weak, note the number on the nearest white box on the ceiling
and tell the help desk.
""",
    "directory/phones.csv": """name,role,site,room,phone
Maren Stokkeland,managing director,Bergen,501,4400
Jorunn Haaland,finance director,Bergen,412,4402
Petter Ullaland,head of IT,Bergen,118,4415
Olav Granheim,head of security,Bergen,003,4420
Ingvild Brekkhus,head of human resources,Bergen,305,4431
Dagny Vik,head of customer service,Stavanger,12,4460
Hallvard Tveiten,plant manager,Askoy,A1,4470
Kristiina Lepik,plant manager,Narva,N1,4485
""",
    "directory/offices.csv": """office,street,postcode,city,since,staff,desk
Head office,Kjelegaten 9,5015,Bergen,1979,185 people,Turid Eikeland
Service office,Verftsgata 31,4013,Stavanger,1998,24 people,Torunn Aarrestad
Sales office,Speicherweg 6,20457,Hamburg,2003,11 people,Jutta Petersen
Sales office,Rue du Lavoir 18,69003,Lyon,2012,7 people,Odile Garnier
Factory office,Kanali 5,20308,Narva,2004,38 people,Anu Kask
""",
    "factories/machines.csv": """machine,factory,task,maker,year,check,keeper
Gamla,Askoy,pressing copper bodies,Ulfsnes Mek,1966,6 weeks,Terje Bolstad
Svanen,Askoy,bending spouts,Tornio Works,1994,13 weeks,Hege Lunde
Kobben,Askoy,tinning insides,Ulfsnes Mek,1988,4 weeks,Terje Bolstad
Ahi,Narva,baking enamel,Pallas,2006,52 weeks,Rein Tamm
Kotkas,Narva,welding steel seams,Dorn,2015,8 weeks,Rein Tamm
Vares,Narva,packing boxes,Dorn,2020,26 weeks,Signe Ots
""",
}
# Lines of each page of the PDF files.
PDFS = {
    "safety/fire_drill.pdf": (
        "Fire drill",
        [
            [
                "Fire drill at the head office",
                "A drill is held twice a year, once of them unannounced.",
                "When the horn sounds, leave everything and take the",
                "nearest stairs. The lifts stand still. The meeting point is",
                "the fountain in Nygard Park, not the yard.",
            ],
            [
                "Wardens",
                "Each floor has a warden with a yellow cap, who checks the",
                "rooms and leaves last. The chief warden is Berit Skaar.",
                "The building has to be empty within three minutes.",
                "Nobody goes back in before she gives the sign.",
            ],
        ],
    ),
    "safety/first_aid.pdf": (
        "First aid",
        [
            [
                "First aid",
                "Boxes with a white cross hang beside every kitchen and at",
                "both ends of each assembly line. Whoever takes something out",
                "writes it on the card in the lid.",
                "A heart starter hangs behind the reception in Bergen, and",
                "another in the foreman's room of either factory.",
            ],
            [
                "Scalds",
                "With us most injuries are scalds. Cool them under lukewarm",
                "running water for fifteen minutes, and put no ointment on.",
                "The company nurse is Solveig Aune; she is in the house on",
                "Tuesdays and Thursdays.",
            ],
        ],
    ),
    "safety/forklifts.pdf": (
        "Forklifts",
        [
            [
                "Forklifts",
                "A forklift is driven only by people with a licence of the",
                "company, which has to be renewed every thirty months.",
                "In the halls the speed limit is 7 km/h, and in the yard it",
                "is 12 km/h. Walkers keep to the blue lanes and always have",
                "the right of way.",
                "Batteries are loaded in the shed with the open roof. Do not",
                "lift people, not even for a light bulb. Faults are told to",
                "the yard master, Kare Myrvold, and the key goes with him.",
            ]
        ],
    ),
    "quality/limescale_test.pdf": (
        "Limescale test",
        [
            [
                "Limescale test",
                "Lime is the enemy of every electric kettle. In this test a",
                "kettle boils very hard water for 21 days without a pause,",
                "in a cabinet at the laboratory in Narva.",
            ],
            [
                "Result",
                "The crust on the element is scraped off and weighed. More",
                "than 4 grams and the surface is polished anew. Afterwards",
                "the kettle is cleaned with citric acid and has to boil as",
                "fast as on its first day, give or take five seconds.",
                "The method was worked out by Doctor Helve Parn.",
            ],
        ],
    ),
    "holidays/closing_days.pdf": (
        "Closing days",
        [
            [
                "Closing days",
                "Offices and factories are closed on the public holidays of",
                "their country. In addition all sites close from Christmas",
                "Eve until 2 January, without any loss of leave.",
            ],
            [
                "Special days",
                "On 16 May, the eve of the national day, the Norwegian sites",
                "stop at noon. In Narva work ends at noon on 22 June, before",
                "the midsummer fires. The birthday of the company, 9",
                "September, is a working day, but with cake at ten o'clock.",
                "Service in Stavanger keeps one line open for emergencies.",
            ],
        ],
    ),
    "sustainability/energy_report.pdf": (
        "Energy report",
        [
            [
                "Energy report",
                "Both factories together used 6.8 gigawatt hours last year,",
                "a tenth less than in the year before. The roof of the Narva",
                "plant carries 1900 solar panels, which give a fifth of its",
                "power. Askoy lives on hydropower alone.",
            ],
            [
                "Aims",
                "By 2031 the enamelling oven is to be heated with hydrogen.",
                "The heat that it wastes already warms a swimming pool of",
                "the town. The report is written by Runa Teigland, whose",
                "post was created for this purpose in 2017.",
            ],
        ],
    ),
}
# Question, answers that are right.
QUESTIONS = [
    ("how much may a hotel in oslo cost", ["160 EUR", "160"]),
    (
        "how early do plane tickets have to be bought",
        ["eighteen days", "at least eighteen days"],
    ),
    ("how much do i get per km in my private car", ["0.41 EUR", "0.41"]),
    (
        "how long after a journey can i still hand in receipts",
        ["45 days", "45 days after the trip"],
    ),
    ("how many vacation days do employees get per year", ["27 days", "27"]),
    (
        "how long can i be off to look after my ill son per year",
        ["fourteen days", "up to fourteen days"],
    ),
    (
        "which company transports my furniture when i relocate",
        ["Fjordflytt", "the firm Fjordflytt"],
    ),
    (
        "when is the salary transferred",
        ["24th of each month", "24th", "the 24th"],
    ),
    ("how much extra is paid for working at night", ["55 percent", "55"]),
    (
        "how much does the employer contribute to the retirement fund",
        ["6.5 percent", "6.5 percent of your wages"],
    ),
    (
        "how long must a password be",
        ["sixteen characters", "at least sixteen characters"],
    ),
    (
        "what number do i ring after losing the blue key",
        ["extension 4410", "4410"],
    ),
    ("who talks to the press", ["Astrid Fauske"]),
    (
        "when can i eat lunch in stavanger",
        ["11:45 to 12:45", "from 11:45 to 12:45"],
    ),
    ("who rescued the moulds when the workshop burned", ["Knut Birkeland"]),
    (
        "what was the job of ragnhild aasmundsen's father",
        ["coppersmith", "a coppersmith"],
    ),
    ("where did the family of tobias vennesland trade", ["Haugesund"]),
    ("how much water fits into the skarv", ["3.5 litres"]),
    (
        "how many kettles does the estonian plant produce daily",
        ["2400 kettles", "2400"],
    ),
    ("what does replacing a switch cost", ["19 EUR", "19"]),
    (
        "how many days does a parcel to japan take",
        ["9 to 11", "9 to 11 working days"],
    ),
    ("how far do kettles fall in the test", ["85 centimetres"]),
    (
        "what share of my salary do i keep while home with a baby",
        ["95 percent", "95 percent of your wages"],
    ),
    (
        "by when must i ask for time off to study",
        ["first of October", "the first of October"],
    ),
    ("which metal is the travel kettle made from", ["titanium"]),
    (
        "what award did the glass kettle receive",
        ["Golden Ladle", "the Golden Ladle"],
    ),
    ("how long is a stove kettle guaranteed", ["twenty-five years"]),
    ("what is the annual fee of the sports club", ["25 EUR", "25 EUR a year"]),
    ("who chooses new books for the library", ["Eldbjorg Risnes"]),
    (
        "how much is a car space under the head office",
        ["70 EUR", "70 EUR a month"],
    ),
    (
        "where do we gather after leaving the burning office",
        ["fountain in Nygard Park", "the fountain in Nygard Park"],
    ),
    ("how long should a scald be cooled", ["fifteen minutes"]),
    ("how fast may a forklift go indoors", ["7 km/h"]),
    (
        "on which day before midsummer do people in narva go home early",
        ["22 June", "on 22 June"],
    ),
    (
        "how many solar modules are on the estonian factory",
        ["1900 solar panels", "1900"],
    ),
    ("what is the phone extension of the finance director", ["4402"]),
    ("where in lyon is our sales office", ["Rue du Lavoir 18"]),
    ("who looks after the machine that bends the spouts", ["Hege Lunde"]),
    ("how long are found objects stored", ["ten weeks", "for ten weeks"]),
    (
        "which ship takes us to the summer party",
        ["Oster", "steamer Oster", "The steamer Oster"],
    ),
]


def write(folder) -> None:
    """Writes all documents below a folder (pathlib.Path)."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, (title, pages) in PDFS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(small_pdf(pages, title=title))
