// An answer of the model as elements of the page. Everything in it becomes a
// text node, never markup.

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

// What would be unseen or would turn text around, as an escape.
const CONTROLS =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

export function visible(text) {
  return text.replace(
    CONTROLS,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
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
    ])
      .filter((candidate) => candidate.block_id !== NO_BLOCK_ID)
      .map((candidate) => ({
        blockId: candidate.block_id,
        logProb: candidate.log_prob,
        title: asText(candidate.title),
        text: asText(candidate.text),
        answer: asText(candidate.answer),
        url: asText(candidate.url ?? ""),
        fields: asText(candidate.fields ?? ""),
      })),
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
    block.append(visible(text));
    return block;
  }
  const piece = (from, to) => visible(points.slice(from, to).join(""));
  block.append(
    piece(0, start),
    element("mark", {}, piece(start, limit)),
    piece(limit),
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

// What there is instead of an answer, or before one that is unsure.
function remark(answer, filter) {
  if (answer.answer !== "") {
    return answer.answered
      ? ""
      : "The documents do not seem to say this. The closest is:";
  }
  return filter !== "" && !answer.candidates.length
    ? `No document matches the filter \u201c${visible(filter)}\u201d.`
    : "Nothing was found for this question.";
}

function headline(answer, filter) {
  const words = element("p", { class: "answer", dir: "auto" });
  const shown = remark(answer, filter);
  if (shown !== "") {
    words.classList.add("none");
    words.append(element("span", { class: "remark" }, shown));
  }
  const found = answer.answer !== "";
  if (found && answer.sentence !== "") {
    words.classList.add("sentence");
    const { sentence, start } = answer;
    const first = sentenceStart(answer);
    const limit = answer.isSentence ? 0 : answer.limit - first;
    mark(words, sentence, start - first, limit);
  } else if (found) {
    words.append(visible(answer.answer));
  }
  const facts = element("p", { class: "facts" });
  if (found && answer.confidence !== null) {
    const sure = Math.round(100 * answer.confidence);
    facts.append(element("span", {}, `${sure} % sure`));
  }
  facts.append(copyButton());
  return [words, facts];
}

// The headings above a text, the outermost first.
function titleOf(text, isOfFiles) {
  const title = visible(text) || "Untitled";
  return isOfFiles ? title.replaceAll(": ", " \u203a ") : title;
}

// A link to a document, its own or to the file that the server shows.
function linkOf(url, blockId, { files, key }) {
  const href = safeUrl(url);
  const text = visible(url);
  if (href !== null) {
    return element("a", { href, rel: "noopener noreferrer" }, text);
  }
  if (!files || url === "") return text;
  const mark = url.indexOf("#");
  const anchor = mark < 0 ? "" : url.slice(mark);
  const place = `documents/${blockId}${anchor}`;
  if (!key) return element("a", { href: place, target: "_blank" }, text);
  // A link has no header for a key.
  const field = element("input", { type: "hidden", name: "key", value: key });
  const button = element("button", { class: "plain" }, text);
  const more = { class: "link", action: place, method: "post", target: "_blank" };
  return element("form", more, field, button);
}

function sourceOf({ url, fields, blockId }, options) {
  const source = element("div", { class: "source" });
  if (url !== "") source.append("Source: ", linkOf(url, blockId, options));
  if (fields !== "") {
    if (source.hasChildNodes()) source.append(element("br"));
    source.append(visible(fields));
  }
  return source;
}

function evidence(answer, options) {
  const title = titleOf(answer.title, options.files);
  const source = sourceOf(answer, options);
  if (options.license) {
    if (source.hasChildNodes()) source.append(element("br"));
    source.append(`Licence: ${options.license}`);
  }
  return element(
    "section",
    { id: "evidence", "aria-label": "Evidence" },
    element("h2", { dir: "auto" }, title),
    markedText(answer.text, answer.start, answer.limit),
    source,
  );
}

// Where an answer first stands in a text, in code points; [0, 0] if nowhere.
function spanOf(text, answer) {
  const place = answer === "" ? -1 : text.indexOf(answer);
  if (place < 0) return [0, 0];
  const start = Array.from(text.slice(0, place)).length;
  return [start, start + Array.from(answer).length];
}

function otherItem(candidate, options) {
  const what = element("summary", { dir: "auto" });
  const title = titleOf(candidate.title, options.files);
  what.append(element("span", { class: "title" }, title));
  if (candidate.answer !== "") {
    const own = visible(candidate.answer);
    what.append(element("span", { class: "own" }, own));
  }
  const place = spanOf(candidate.text, candidate.answer);
  const text = markedText(candidate.text, ...place);
  const item = element("details", {}, what, text);
  item.append(sourceOf(candidate, options));
  return element("li", {}, item);
}

// What else was read; of equal texts, the first.
function others(answer, options) {
  const seen = new Set([answer.text]);
  const found = answer.candidates.filter(
    ({ text }) => !seen.has(text) && seen.add(text),
  );
  if (!found.length) return [];
  const items = found.map((candidate) => otherItem(candidate, options));
  return [
    element("h2", {}, "Also found"),
    element("ul", { id: "others" }, ...items),
  ];
}

function rows(name, pairs) {
  const list = element("dl", { id: name });
  for (const [number, text] of pairs) {
    list.append(
      element("dt", {}, number),
      element("dd", { dir: "auto" }, visible(text)),
    );
  }
  return list;
}

function details(answer, options) {
  const share = (logProb) => (logProb === null ? 0 : Math.exp(logProb));
  return element(
    "details",
    { id: "details" },
    element("summary", {}, "Details"),
    element(
      "p",
      {},
      "The candidates: each block that was read, p(z|x), which is the " +
        "search's trust in it, and the answer that it would give alone.",
    ),
    rows(
      "blocks",
      answer.candidates.map((each) => [
        share(each.logProb).toFixed(3),
        `${each.title} (block ${each.blockId}): ${each.answer || "no answer"}`,
      ]),
    ),
    element("p", {}, "The best answers by score:"),
    rows(
      "nbest",
      answer.nbest.map((each) => [decimal(each.score), asText(each.answer)]),
    ),
    timings(options.total, options.headers),
    element("p", {}, options.about),
  );
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

// Everything to show of an answer. `options`: `filter`; `headers` of the
// response; `total`, the milliseconds that the visitor waited; `license`;
// `files`, whether the server shows documents, `key` for them; `about`.
export function render(answer, options) {
  const shown = headline(answer, options.filter);
  if (answer.blockId !== NO_BLOCK_ID) shown.push(evidence(answer, options));
  shown.push(...others(answer, options), details(answer, options));
  return shown;
}
