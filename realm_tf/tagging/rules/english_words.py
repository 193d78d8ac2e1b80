"""Lists of English words that tell names from words merely capitalised."""


def _words(text):
    return frozenset(text.split())


# Never a name, nor its first word, where a sentence begins: articles,
# pronouns, prepositions, conjunctions, question words, sentence adverbs,
# participles that open a clause.
FUNCTION_WORDS = _words("""
    a an the this that these those i you he she it we they me him her us them
    my your his its our their mine ours theirs each every all both either
    neither some any no none another other others such what whatever which
    who whom whose when whenever where wherever why how whether there here
    one two three four five six seven eight nine ten eleven twelve thirteen
    fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty
    fifty hundreds thousands millions many much more most several few fewer
    less least enough half
    in on at by for from to of with within without into onto upon over under
    above below between among amongst amid across through throughout during
    before after since until till about around against along alongside behind
    beneath beside besides beyond despite down up near off out outside inside
    past per than toward towards unlike like via as except minus plus
    and but or nor so yet if because although though while whereas unless
    once lest provided only even just not also too
    then thus hence therefore however moreover furthermore nevertheless
    nonetheless meanwhile instead otherwise indeed still again ever never
    always often sometimes usually generally normally typically mostly mainly
    partly largely perhaps maybe probably possibly certainly clearly actually
    originally initially finally eventually ultimately soon later earlier
    afterwards thereafter today tomorrow yesterday now nowadays recently
    currently formerly previously subsequently consequently accordingly
    additionally similarly likewise conversely specifically especially
    particularly notably apparently reportedly allegedly supposedly sadly
    fortunately unfortunately luckily interestingly surprisingly importantly
    historically traditionally legally officially technically together
    overall altogether contrary apart aside away back ago almost nearly
    roughly approximately exactly quite rather very fairly hardly barely
    scarcely seldom rarely simply slowly suddenly quickly gradually shortly
    immediately presumably
    according following including using based born being having given known
    called named located founded built written made led owing due depending
    considering regarding concerning beginning starting leaving taking seeing
    is are was were be been am do does did has have had can could may might
    must shall should will would let see note
    same own next last previous numerous various certain
    """)

# Common nouns and adjectives that often open a sentence, in Wikipedia above
# all; those with an ending of common words (-tion, -ness, ...) are told by it.
COMMON_OPENERS = _words("""
    access acid active actors acts additional administrative adult adults
    air aircraft alcohol aluminium analysis ancient animal animals anyone
    archaeological areas arsenic art artificial athletes atoms autumn
    bacteria bad ball band basic basketball battles beer big biology birds
    black blood blue blues boats body books bread brown buildings butter
    calcium capital carbon career cars cash castles cattle cells changes
    chemical chemistry children chlorine claims classic classical clay
    climate coal coffee colleges colonial color colour comic commercial
    common compounds computer constitutional contemporary copper coral corn
    cotton country cream criminal critics crowds cultural current data day
    days death deep defeat democracy design details diamonds differences
    digital direct diseases doctors dogs dry earthquakes economic efforts
    electric electrical energy environmental enzymes erosion estimates
    ethanol ethnic events everybody everyone examples experts failure fans
    fatty features federal fictional field financial fire fish flour folk
    food foreign forests formal former fossils free fresh friends fuel game
    games gas general genetic geography glass global glucose gold good
    granite great green groups growth hard health heat heavy high higher
    historians historic historical history home honey hormones horses hot
    huge human humans hydrogen ice ideas important independent indigenous
    individual individuals industrial informal insects interest iodine iron
    jazz key killer kinds kings knowledge land language larger late law laws
    lead legend legends legislative life light limestone liquid lithium
    little local long love low main males mammals marriage mass
    mathematicians mathematics meat mechanical media medical medicine men
    methods military milk minerals modern molecules money mountain movie
    multiple music myth natural new news night nitrogen nobody normal
    nuclear official oil old older organisms origin oxygen pain paint paper
    part parts patients peace peasants people petroleum physical physics
    pilgrims places plague plant plants platinum poetry poets police
    political politics poor popular power prayer pressure prices primary
    private problems professional programs prominent propaganda protein
    proteins psychology public pupils pure radio rain real reasons recent
    red regional regular related religion religious research residents
    results rice right rock roots rumour sailors sales salt sand satellite
    schools scientific sea season secondary seeds sex sexual ships short
    significant signs silk silver simple sister slavery slaves sleep small
    smaller smoke snow social soft software soil solar somebody someone
    songs sound sources space special specific speed sports standard starch
    stars state steam steel structural students subsequent success sugar
    summer sunlight symptoms tall tea teams television tennis thick thin
    things time tiny total towns track trade traditional trains transport
    trees tropical trouble true types typical uranium urban victory video
    viruses visitors volcanic volcanoes war water weather wheat white wild
    wind wine winter women wood wool work years yellow young zinc
    """)

# What follows a subject: after a capitalised first word of a sentence these
# tell that it is a name (a plural would take "were").
VERBS = _words("""
    is was has had does did became becomes began begins won wins wrote writes
    died dies made makes went goes came comes took takes left leaves gave
    gives got gets grew grows said says saw sees sent sends sold sells told
    tells ran runs rose led leads held holds kept keeps knew knows lost loses
    met meets paid put read reads rode sat set sought spent spoke stood stands
    swam taught thought threw understood wore fell fought found felt flew fled
    drew drove ate bore bought brought built broke chose cut dealt hit lay
    lies heard hid hurt sang sank shot slept struck swore would will could can
    must might may should later also then never first once soon therefore
    always eventually himself herself itself now again still initially
    immediately finally used lives remains contains describes claims argues
    includes appears plays produces offers receives returns belongs consists
    covers forms flows houses hosts lets serves uses wants says
    """)

# Ranks and titles before a person's name; the name goes without.
TITLES = _words("""
    Abbot Admiral Ambassador Archbishop Archduchess Archduke Baron Baroness
    Bishop Brother Caliph Capt. Captain Cardinal Chairman Chancellor Chief
    Col. Colonel Commander Commodore Congressman Congresswoman Corporal
    Count Countess Czar Dame Director Dr Dr. Duchess Duke Earl Emperor
    Empress Father Frau Gen. General Gov. Governor Herr Imam Judge Justice
    Kaiser King Lady Lieutenant Lord Lt. Madame Mademoiselle Major Marquess
    Marquis Marshal Mayor Minister Miss Monsieur Mr Mr. Mrs Mrs. Ms Ms.
    Pharaoh Pope Premier President Prime Prince Princess Prof. Professor
    Queen Rabbi Representative Rev. Reverend Secretary Sen. Senator Sergeant
    Sgt. Shah Sir Sister Sultan Tsar Tsarina Vice Viscount
    """)

# Titles that make a name with a place after "of".
PEERS = _words("""
    Duke Duchess Earl Count Countess Prince Princess Lord Lady Baron Baroness
    Viscount Marquis Marquess Archduke Brother Sister Father
    """)

# Last words of the names of places, bodies, works and events.
HEADS = _words("""
    Abbey Academy Act Agency Airport Alliance Army Assembly Association
    Avenue Bank Barracks Basilica Battalion Battle Bay Bible Bridge Brigade
    Building Bureau Canal Cape Castle Cathedral Cave Cemetery Center Centre
    Chamber Chapel Church Circus City Club Coast College Colony Commission
    Committee Commonwealth Community Company Confederation Conference
    Congress Convention Corporation Corps Council Court Cup Declaration
    Department Desert Division Dynasty Electric Empire Federation Festival
    Fleet Force Forest Fort Foundation Fund Gallery Garden Gardens Gate
    Government Group Gulf Hall Harbor Harbour Hill History Hospital Hotel
    House Institute Institution Island Isle Isles Journal Kingdom Lake Law
    League Library Lighthouse Line Market Massacre Ministry Monastery
    Monument Mosque Mount Mountain Mountains Museum Mutiny Navy Observatory
    Ocean Office Opera Orchestra Order Organisation Organization Palace Park
    Parliament Party Pass Peace Peninsula Plateau Point Pole Port Post Press
    Prize Project Province Railroad Railway Range Rebellion Records Reef
    Regiment Region Republic Review Revolt Revolution Ridge Riots River Road
    Sanctuary School Sea Senate Service Siege Society Sound Square Stadium
    State States Station Strait Street Studios Symphony Synagogue Temple Territory
    Theater Theatre Tower Town Treaty Trust Union University Valley Village
    Wall War Wars World
    """)

# Bodies whose field may be two: "Museum of Arts and Crafts".
BODIES = _words("""
    Academy Board Bureau Centre Center College Committee Council Department
    Faculty Institute Ministry Museum Office School Secretary Society
    University Minister Conservatory Gallery Federation Association Union
    """)

# "Alexander the Great".
EPITHETS = _words("""
    Apostle Bald Baptist Bastard Black Blind Bold Catholic Confessor
    Conqueror Cruel Elder Evangelist Fair Fat Fearless Good Great Hun
    Impaler Just Liberator Lionheart Magnificent Martyr Navigator Peacemaker
    Pious Red Simple Terrible Theologian Unready White Wise Younger
    """)

# Countries and regions of two names.
PAIRS = frozenset((
    ("Antigua", "Barbuda"),
    ("Bosnia", "Herzegovina"),
    ("Kitts", "Nevis"),
    ("Newfoundland", "Labrador"),
    ("Trinidad", "Tobago"),
))  # fmt: skip
