// An answer of the model as elements of the page. Everything in it becomes a
// text node, never markup.

const SVG = "http://www.w3.org/2000/svg";
const NO_BLOCK_ID = -1;
const COPIED_MILLISECONDS = 2000;

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// A string that is not UTF-8 comes as {"b64": ...}.
function asText(value) {
  if (typeof value === "string") return value;
  const bytes = Uint8Array.from(atob(value.b64), (c) => c.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}

function safeUrl(text) {
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  return ["http:", "https:"].includes(url.protocol) ? url.href : null;
}

// One row of the outputs, the candidates and n-best answers as lists.
export function readAnswer(outputs) {
  const one = (name) => outputs[name][0];
  const list = (prefix, names) =>
    outputs[`${prefix}_${names[0]}`][0].map((_, i) =>
      Object.fromEntries(names.map((n) => [n, one(`${prefix}_${n}`)[i]])),
    );
  return {
    answer: asText(one("answer")),
    score: one("score"),
    confidence: one("confidence"),
    // Earlier exports give every answer.
    answered: outputs.answered ? one("answered") : true,
    blockId: one("block_id"),
    title: asText(one("title")),
    text: asText(one("text")),
    url: asText(one("url")),
    fields: outputs.fields ? asText(one("fields")) : "",
    start: one("start"),
    limit: one("limit"),
    // Earlier exports have none.
    sentence: outputs.answer_sentence ? asText(one("answer_sentence")) : "",
    isSentence: outputs.is_sentence ? one("is_sentence") : false,
    nbest: list("nbest", ["answer", "score"]).filter(
      (alternative) => asText(alternative.answer) !== "",
    ),
    candidates: list("candidate", [
      "block_id",
      "title",
      "text",
      "answer",
      "log_prob",
      // Earlier exports have none; fields are those of a corpus.
      ...(outputs.candidate_url ? ["url"] : []),
      ...(outputs.candidate_fields ? ["fields"] : []),
    ]).filter((candidate) => candidate.block_id !== NO_BLOCK_ID),
  };
}

// start and limit count code points, as the iterator of a string does.
function markedText(text, start, limit) {
  const block = element("blockquote", { class: "text", dir: "auto" });
  return mark(block, text, start, limit);
}

function mark(block, text, start, limit) {
  const points = Array.from(text);
  if (start < 0 || limit > points.length || start >= limit) {
    block.append(text);
    return block;
  }
  block.append(
    points.slice(0, start).join(""),
    element("mark", {}, points.slice(start, limit).join("")),
    points.slice(limit).join(""),
  );
  return block;
}

function decimal(value) {
  return value === null ? "none" : value.toFixed(2);
}

function copyButton() {
  const button = element("button", { type: "button", class: "plain" });
  button.textContent = "Copy link";
  button.addEventListener("click", async () => {
    const link = location.href;
    try {
      await navigator.clipboard.writeText(link);
    } catch {
      // Browsers give the clipboard to https and localhost alone.
      const field = element("input", { readonly: "", value: link });
      field.setAttribute("aria-label", "Link to this question");
      button.replaceWith(field);
      field.select();
      return;
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy link"), COPIED_MILLISECONDS);
  });
  return button;
}

// The code point of the text where the sentence begins that holds the answer.
function sentenceStart({ text, sentence, start }) {
  const before = Array.from(text).slice(0, start).join("");
  const place = text.lastIndexOf(sentence, before.length);
  return Array.from(text.slice(0, place)).length;
}

function headline(answer, question) {
  const found = answer.answer !== "";
  const sure = found && answer.answered;
  const words = element("p", { class: sure ? "answer" : "answer none" });
  words.dir = "auto";
  if (found && !sure) words.append("Not sure; the likeliest is ");
  if (found && answer.sentence !== "") {
    words.classList.add("sentence");
    const { sentence, start } = answer;
    const first = sentenceStart(answer);
    const limit = answer.isSentence ? 0 : answer.limit - first;
    mark(words, sentence, start - first, limit);
  } else {
    words.append(found ? answer.answer : "No answer found.");
  }
  const facts = element("p", { class: "facts" });
  if (found) {
    facts.append(
      element("span", {}, `confidence ${decimal(answer.confidence)}`),
      element("span", {}, `score ${decimal(answer.score)}`),
    );
  }
  facts.append(copyButton());
  return [words, facts];
}

function sourceOf(url, fields) {
  const source = element("p", { class: "source" });
  const href = safeUrl(url);
  if (href !== null) {
    source.append(
      "Source: ",
      element("a", { href, rel: "noopener noreferrer" }, url),
    );
  } else if (url !== "") {
    source.append(`Source: ${url}`);
  }
  if (fields !== "") {
    if (source.hasChildNodes()) source.append(element("br"));
    source.append(fields);
  }
  return source;
}

function evidence(answer, license) {
  // The number of the block among those that were read.
  const place = answer.candidates.findIndex(
    (candidate) => candidate.block_id === answer.blockId,
  );
  const number = place < 0 ? "" : `[${place + 1}] `;
  const title = element(
    "h2",
    { dir: "auto" },
    `${number}${answer.title || "Untitled"}`,
  );
  const source = sourceOf(answer.url, answer.fields);
  if (license) {
    if (source.hasChildNodes()) source.append(element("br"));
    source.append(`Licence: ${license}`);
  }
  const section = element("section", { id: "evidence" });
  section.setAttribute("aria-label", "Evidence");
  section.append(
    title,
    markedText(answer.text, answer.start, answer.limit),
    source,
  );
  return section;
}

function bar(probability) {
  const image = document.createElementNS(SVG, "svg");
  image.setAttribute("class", "bar");
  image.setAttribute("aria-hidden", "true");
  for (const width of [1, probability]) {
    const part = document.createElementNS(SVG, "rect");
    part.setAttribute("width", `${100 * width}%`);
    part.setAttribute("height", "100%");
    part.setAttribute("rx", "2");
    image.append(part);
  }
  return image;
}

// Where an answer first stands in a text, in code points; [0, 0] if nowhere.
function spanOf(text, answer) {
  const place = answer === "" ? -1 : text.indexOf(answer);
  if (place < 0) return [0, 0];
  const start = Array.from(text.slice(0, place)).length;
  return [start, start + Array.from(answer).length];
}

function candidateItem(candidate, number, chosenId) {
  const probability =
    candidate.log_prob === null ? 0 : Math.exp(candidate.log_prob);
  const what = element("span", { class: "what", dir: "auto" });
  const title = asText(candidate.title) || "Untitled";
  what.append(element("span", { class: "title" }, `[${number}] ${title}`));
  const own = asText(candidate.answer);
  what.append(element("span", { class: "own" }, own || "no answer"));
  const item = element("li");
  if (candidate.block_id === chosenId) {
    item.className = "chosen";
    what.append(element("span", { class: "unseen" }, " (shown above)"));
  }
  item.append(
    element(
      "details",
      {},
      element(
        "summary",
        {},
        element("span", { class: "number" }, percent(probability)),
        bar(probability),
        what,
      ),
      markedText(asText(candidate.text), ...spanOf(asText(candidate.text), own)),
      sourceOf(asText(candidate.url ?? ""), asText(candidate.fields ?? "")),
    ),
  );
  return item;
}

function percent(probability) {
  return `${(100 * probability).toFixed(1)} %`;
}

function candidates(answer) {
  if (!answer.candidates.length) return [];
  return [
    element("h2", {}, "Blocks read"),
    element(
      "p",
      { class: "explained" },
      "How the search shares its trust among the blocks read, p(z|x), and " +
        "the answer that each would give alone.",
    ),
    element(
      "ul",
      { id: "blocks" },
      ...answer.candidates.map((candidate, i) =>
        candidateItem(candidate, i + 1, answer.blockId),
      ),
    ),
  ];
}

function nbest(answer) {
  if (!answer.nbest.length) return [];
  const list = element("dl", { id: "nbest" });
  for (const alternative of answer.nbest) {
    const score = decimal(alternative.score);
    list.append(
      element("dt", { class: "number" }, score),
      element("dd", { dir: "auto" }, asText(alternative.answer)),
    );
  }
  return [element("h2", {}, "Best answers by score"), list];
}

function timings(total, headers) {
  const server = /(?:^|,)\s*predict;dur=([\d.]+)/.exec(
    headers.get("Server-Timing") ?? "",
  );
  let words = `Answered in ${Math.round(total)} ms`;
  if (server !== null) {
    words += `, of which ${Math.round(Number(server[1]))} ms on the server`;
  }
  return element("p", { class: "timings" }, `${words}.`);
}

export function linkTo(question, filter = "") {
  const url = new URL(location.pathname, location.href);
  url.searchParams.set("q", question);
  if (filter !== "") url.searchParams.set("filter", filter);
  return url.href;
}

// Everything to show of an answer. `headers` are those of the response,
// `total` the milliseconds that the visitor waited for it.
export function render(answer, { question, license, headers, total }) {
  const shown = [...headline(answer, question)];
  if (answer.blockId !== NO_BLOCK_ID) shown.push(evidence(answer, license));
  shown.push(...candidates(answer), ...nbest(answer));
  shown.push(timings(total, headers));
  return shown;
}
