// Asks the server and shows what came of it.

import { element, linkTo, readAnswer, render, visible } from "./answer.js";

// Quicker answers show no sign of waiting, which would only flicker.
const PATIENCE_MILLISECONDS = 200;
const KEY_ITEM = "realm-api-key";

const byId = (id) => document.getElementById(id);
const questionInput = byId("question");
const filterInput = byId("filter");
const result = byId("result");

let about = null;
let running = null;

// The server writes NaN and Infinity bare, as TF Serving does.
function parseJson(text) {
  const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN/g;
  const strict = text.replace(tokens, (t) => (t[0] === '"' ? t : "null"));
  return JSON.parse(strict);
}

function requestHeaders() {
  const key = sessionStorage.getItem(KEY_ITEM);
  return key === null ? {} : { Authorization: `Bearer ${key}` };
}

class ServerError extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

async function fetchJson(path, options = {}) {
  const headers = { ...requestHeaders(), ...options.headers };
  const response = await fetch(path, { ...options, headers });
  const text = await response.text();
  if (!response.ok) {
    let words = response.statusText;
    try {
      words = JSON.parse(text).error ?? words;
    } catch {
      // A proxy's page: its status says more than its markup.
    }
    throw new ServerError(response.status, words);
  }
  return [parseJson(text), response.headers];
}

// Before each question: a server takes new states of a corpus.
async function loadAbout() {
  [about] = await fetchJson("about.json");
  const count = about.num_blocks?.toLocaleString("en");
  let words = count ? `Answers from ${count} passages${about.documents ? " of your documents" : ""}` : "";
  if (words && !about.documents && about.example_titles?.length) {
    words += `, such as ${about.example_titles.join(", ")}`;
  }
  byId("corpus").textContent = visible(words);
  if (about.fields?.length) {
    byId("filtering").hidden = false;
    const [name] = about.fields;
    const value = about.field_values?.[name]?.[0] ?? "\u2026";
    filterInput.placeholder = `such as ${name}=${value}`;
  }
  byId("example-list").replaceChildren(
    ...(about.example_questions ?? []).map((example) => {
      const link = element("a", { href: linkTo(example), dir: "auto" });
      link.textContent = visible(example);
      link.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        submit(example, "");
      });
      return element("li", {}, link);
    }),
  );
}

// The fields that a filter can name, and values of them.
function showFields(wanted) {
  byId("fields").replaceChildren(
    ...(wanted ? (about?.fields ?? []) : []).flatMap((name) => {
      const values = about.field_values?.[name] ?? ["\u2026"];
      return [
        element("dt", {}, visible(name)),
        element("dd", {}, visible(values.join(", ")) || "no document has it"),
      ];
    }),
  );
  byId("filters").hidden = !byId("fields").hasChildNodes();
}

function showAnswer(answer, options) {
  result.replaceChildren(...render(answer, options));
  show("result");
  showFields(options.filter !== "" && !answer.candidates.length);
  byId("status").textContent =
    answer.answer === ""
      ? result.querySelector(".answer").textContent
      : `Answer: ${answer.answer}. From: ${answer.title}.`;
}

// Shows this part of the page instead of the others.
function show(name) {
  for (const part of ["result", "problem", "access", "examples"]) {
    byId(part).hidden = part !== name;
  }
  showFields(false);
}

function showProblem(error) {
  if (error.status === 401) {
    sessionStorage.removeItem(KEY_ITEM);
    show("access");
    byId("key").focus();
    return;
  }
  const told = error instanceof ServerError;
  const isFilter = error.status === 400 && filterInput.value !== "";
  if (!told) console.error(error);
  byId("problem-text").textContent = isFilter
    ? "The server cannot use this filter."
    : told
      ? `The server did not answer (status ${error.status}).`
      : "The server cannot be reached: it may have stopped.";
  byId("problem-words").textContent = told ? visible(error.message) : "";
  show("problem");
  showFields(isFilter);
}

function setWaiting(waiting) {
  byId("progress").hidden = !waiting;
  result.setAttribute("aria-busy", String(waiting));
  if (waiting) byId("status").textContent = "Asking the server.";
}

// Runs one task at a time: a new one ends the one before.
async function run(task) {
  running?.abort();
  const controller = new AbortController();
  running = controller;
  const patience = setTimeout(() => setWaiting(true), PATIENCE_MILLISECONDS);
  try {
    await task(controller.signal);
  } catch (error) {
    if (running === controller) showProblem(error);
  } finally {
    clearTimeout(patience);
    if (running === controller) {
      running = null;
      setWaiting(false);
    }
  }
}

// What the server runs: documents are chosen by a signature of its own.
function requestOf(question, filter) {
  if (filter === "") return { inputs: { question: [question] } };
  return {
    signature_name: "serving_default_filtered",
    inputs: { question: [question], filter: [filter] },
  };
}

function ask(question, filter) {
  document.title = question;
  return run(async (signal) => {
    const started = performance.now();
    await loadAbout();
    const name = encodeURIComponent(about.model);
    const [body, headers] = await fetchJson(`v1/models/${name}:predict`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(requestOf(question, filter)),
      signal,
    });
    showAnswer(readAnswer(body.outputs), {
      filter,
      license: about.evidence_license,
      files: about.documents,
      key: sessionStorage.getItem(KEY_ITEM),
      about: `Model ${about.model}, version ${about.version}, index ${about.index}.`,
      headers,
      total: performance.now() - started,
    });
  });
}

function submit(question, filter) {
  const asked = question.trim();
  questionInput.value = asked;
  filterInput.value = filter.trim();
  if (asked === "") {
    questionInput.focus();
    return;
  }
  const link = linkTo(asked, filterInput.value);
  if (link !== location.href) history.pushState(null, "", link);
  ask(asked, filterInput.value);
}

function clear() {
  if (location.search !== "") history.pushState(null, "", location.pathname);
  openAddress();
  questionInput.focus();
}

// What the address says: a question, or the page as it opens.
function openAddress() {
  const address = new URLSearchParams(location.search);
  const asked = address.get("q")?.trim() ?? "";
  questionInput.value = asked;
  filterInput.value = address.get("filter")?.trim() ?? "";
  if (asked !== "") {
    ask(asked, filterInput.value);
    return;
  }
  document.title = "Ask a question";
  byId("status").textContent = "";
  run(async () => {
    await loadAbout();
    if (about.example_questions?.length) show("examples");
  });
  show("nothing");
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  submit(questionInput.value, filterInput.value);
});

byId("retry").addEventListener("click", openAddress);

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY_ITEM, byId("key").value.trim());
  byId("key").value = "";
  openAddress();
});

document.addEventListener("keydown", (event) => {
  const inField = event.target.matches("input");
  if (event.key === "/" && !inField && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    questionInput.select();
    questionInput.focus();
  } else if (event.key === "Escape" && !event.isComposing) {
    clear();
  }
});

addEventListener("popstate", openAddress);

openAddress();
if (location.search === "") questionInput.focus();
