// Shows the embedded episodes. Whatever a model wrote reaches the page through textContent only.
"use strict";

const byId = (id) => document.getElementById(id);

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined)); // strings become text nodes
  return made;
}

async function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// Two environments may have one id: where a page has several, an id stands behind the name of its own.
const environmentOf = (record) => record.episode.environment ?? record.environment ?? "bfcl";
const taskOf = (record) => (several ? `${environmentOf(record)}/${record.task_id}` : record.task_id);

const KEYS = {
  stage: (record) => record.stage,
  split: (record) => record.split,
  step: (record) => record.step,
  category: (record) => record.episode.category,
  task: taskOf,
  stop: (record) => record.episode.stop_reason ?? "running",
};

let episodes = [];
let several = false; // environments
let shown = []; // what the filters leave, as indices into episodes
let current = -1;
const searchable = new Map(); // index -> all texts in lower case, made when first searched

function fillFilters() {
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  for (const [id, key] of Object.entries(KEYS)) {
    const select = byId(id);
    select.append(new Option("all", ""));
    for (const value of [...new Set(episodes.map((record) => String(key(record))))].sort(compare)) {
      select.append(new Option(value, value));
    }
    select.addEventListener("change", filter);
  }
  for (const id of ["low", "high", "search"]) byId(id).addEventListener("input", filter);
}

function textOf(index) {
  if (!searchable.has(index)) {
    const texts = [];
    (function collect(value) {
      if (typeof value === "string") texts.push(value);
      else if (value && typeof value === "object") Object.values(value).forEach(collect);
    })(episodes[index]);
    searchable.set(index, texts.join("\n").toLowerCase());
  }
  return searchable.get(index);
}

function filter() {
  const wanted = Object.entries(KEYS).filter(([id]) => byId(id).value !== "");
  const low = byId("low").value === "" ? -Infinity : Number(byId("low").value);
  const high = byId("high").value === "" ? Infinity : Number(byId("high").value);
  const words = byId("search").value.toLowerCase();
  shown = [...episodes.keys()].filter((index) => {
    const record = episodes[index];
    const score = record.score ?? NaN;
    return (
      wanted.every(([id, key]) => String(key(record)) === byId(id).value) &&
      !(score < low || score > high) &&
      (words === "" || textOf(index).includes(words))
    );
  });
  byId("count").textContent = `${shown.length} of ${episodes.length}`;
  byId("list").replaceChildren(...shown.map(entry));
  if (shown.includes(current)) mark();
  else if (shown.length) show(shown[0]);
  else byId("episode").replaceChildren(element("p", "soft", episodes.length ? "No episode is like this." : "No episode is stored."));
}

// An environment may judge no turn but the episode: then its outcome says what the turns cannot.
const asAWhole = (episode) => episode.turns.length > 0 && episode.turns.every((turn) => turn.passed === null);
const verdict = (episode) => (!episode.outcome ? "not judged" : episode.outcome.passed ? "passed" : "not passed");
const components = (episode) =>
  Object.entries(episode.outcome?.components ?? {}).map(([name, value]) => `${name} ${number(value)}`).join(", ");

function entry(index) {
  const record = episodes[index];
  const turns = record.episode.turns;
  const passed = `${turns.filter((turn) => turn.passed).length}/${turns.length} turns`;
  const parts = components(record.episode);
  const button = element(
    "button", "",
    element("span", "", taskOf(record)),
    element("span", "score", number(record.score)),
    element("small", "", `${record.stage} ${record.split}, step ${record.step}, sample ${record.session_id}`),
    element("small", "score", `${asAWhole(record.episode) ? verdict(record.episode) : passed}, ${KEYS.stop(record)}`),
    parts ? element("small", "wide", parts) : null,
  );
  button.type = "button";
  button.dataset.index = index;
  button.addEventListener("click", () => show(index));
  return element("li", "", button);
}

function mark() {
  const list = byId("list");
  for (const button of list.querySelectorAll("button")) {
    const here = Number(button.dataset.index) === current;
    button.setAttribute("aria-current", here);
    if (!here) continue; // scrollIntoView would move the page as well
    const below = button.offsetTop + button.offsetHeight - list.clientHeight;
    list.scrollTop = Math.min(button.offsetTop, Math.max(list.scrollTop, below));
  }
}

const WAITED = { generate: "engine", environment: "environment", user: "user", reward: "reward" };

// What a stored line says of its time; those of earlier releases say less.
function timeOf({ seconds }) {
  const said = Object.entries(WAITED).filter(([name]) => typeof seconds?.[name] === "number" && seconds[name] > 0);
  const parts = said.map(([name, title]) => `${title} ${number(seconds[name])} s`);
  if (typeof seconds?.total === "number") parts.unshift(`${number(seconds.total)} s in all`);
  return parts.map((part) => `, ${part}`).join("");
}

const number = (value) => (typeof value === "number" ? String(Math.round(value * 1000) / 1000) : "");

// `#episode-7` in the address, as the links of the table of the slowest episodes have it.
function follow() {
  const index = Number(/^#episode-(\d+)$/.exec(location.hash)?.[1] ?? NaN);
  if (!episodes[index]) return;
  for (const id of [...Object.keys(KEYS), "low", "high", "search"]) byId(id).value = "";
  filter();
  show(index);
  byId("viewer").scrollIntoView();
}

function show(index) {
  current = index;
  const record = episodes[index];
  const metrics = Object.entries(record.reward ?? {}).map(([name, value]) =>
    element("tr", "", element("td", "", name), element("td", "number", number(value))),
  );
  const details = element("details", "", element("summary", "", "metrics"), element("table", "", ...metrics));
  byId("episode").replaceChildren(element("div", "",
    element("h3", "", taskOf(record), element("span", "badge", `score ${number(record.score)}`), element("span", "badge", KEYS.stop(record)), outcomeBadge(record.episode)),
    components(record.episode) ? element("p", "", `judgement: ${components(record.episode)}`) : null,
    element("p", "soft", `${record.stage} ${record.split}, step ${record.step}, sample ${record.session_id}` +
      (record.prompt_tokens ? `, ${record.prompt_tokens} prompt tokens, ${record.response_tokens} response tokens, ${record.engine_tokens} of them the model's` : "") + timeOf(record)),
    record.episode.fault ? element("div", "text error", record.episode.fault) : null,
    details,
    ...record.episode.turns.map(turnView),
  ));
  mark();
}

function outcomeBadge(episode) {
  if (!asAWhole(episode)) return null;
  const look = !episode.outcome ? "soft" : episode.outcome.passed ? "good" : "bad";
  return element("span", `badge ${look}`, `episode ${verdict(episode)}`);
}

const BFCL = { class: "class", attribute: "attribute", expected: "gold", actual: "here" };

// A column for each key that an item has: BFCL's first, under their names, then those of other environments.
function differenceTable(items) {
  const keys = [...new Set(items.flatMap((item) => Object.keys(item)))];
  const columns = [...Object.keys(BFCL).filter((key) => keys.includes(key)), ...keys.filter((key) => !Object.hasOwn(BFCL, key))];
  const titles = columns.map((key) => element("th", "", Object.hasOwn(BFCL, key) ? BFCL[key] : key));
  const rows = items.map((item) => element("tr", "", ...columns.map((key) => element("td", "text", text(item[key])))));
  return element("table", "", element("tr", "", ...titles), ...rows);
}

const text = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? ""));

function turnView(turn, position) {
  const state = turn.passed ? "passed" : !turn.reached ? "unreached" : turn.passed === null ? "unjudged" : "failed";
  const words = { passed: "passed", failed: "not passed", unreached: "not reached", unjudged: "not judged by turn" };
  const title = element("h3", "", `Turn ${position + 1}`, element("span", `badge ${{ passed: "good", failed: "bad" }[state] ?? "soft"}`, words[state]));
  if (turn.reached && turn.facts.passed_official !== undefined && turn.passed !== turn.facts.passed_official) {
    title.append(element("span", "badge soft", turn.facts.passed_official ? "passed officially" : "not passed officially"));
  }
  if (turn.facts.has_gold === false) title.append(element("span", "badge soft", "nothing to call"));
  const difference = turn.difference?.length
    ? element("details", "", element("summary", "bad", `${turn.difference.length} differences from gold`),
        element("div", "scroll", differenceTable(turn.difference)))
    : null;
  if (difference) difference.open = true;
  return element("section", `turn ${state}`, title, element("div", "text user", turn.user || "(no words; functions are revealed)"), ...turn.steps.map(stepView), difference);
}

function stepView(step) {
  const seconds = step.generate_seconds ? ` ${number(step.generate_seconds)} s` : "";
  const parts = [];
  if (!step.well_formed) parts.push(element("div", "text said", step.text), element("div", "text error", `malformed: ${step.format_error ?? ""}`));
  else {
    if (step.thought) parts.push(element("div", "text thought", step.thought));
    for (const call of step.calls) {
      parts.push(element("div", "text said", `${call.name}(${Object.entries(call.arguments).map(([name, value]) => `${name}=${JSON.stringify(value)}`).join(", ")})`));
      parts.push(element("div", `text${call.error ? " error" : ""}`, call.result));
      if (call.hint) parts.push(element("div", "text hint", `hint: ${call.hint}`));
      else if (call.shown) parts.push(element("div", "text hint", `the model read: ${call.shown}`));
    }
    if (step.answer !== null && step.answer !== undefined) parts.push(element("div", "text said", `answer: ${step.answer}`));
  }
  return element("div", "step", element("small", "", `model${seconds}`), ...parts);
}

function move(by) {
  const place = shown.indexOf(current) + by;
  if (place >= 0 && place < shown.length) show(shown[place]);
}

document.addEventListener("keydown", (event) => {
  if (/INPUT|SELECT/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "/") byId("search").focus();
  else return;
  event.preventDefault();
});

decode(byId("data").textContent).then(
  (found) => {
    episodes = found;
    several = new Set(found.map(environmentOf)).size > 1;
    fillFilters();
    filter();
    follow();
    addEventListener("hashchange", follow);
    document.body.dataset.ready = "true";
  },
  (error) => byId("episode").replaceChildren(element("p", "bad", `The episodes could not be read: ${error}`)),
);
