// The list of the embedded episodes, its filters, and which one is shown.
"use strict";

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
  stop: stopOf,
};
const TYPED = ["low", "high", "search"];

let episodes = [];
let tasks = {}; // environment/task -> system prompt and gold's calls
let several = false; // environments
let shown = []; // what the filters leave, as indices into episodes
let current = -1;
const entries = new Map(); // index -> its line of the list, made when first listed
const searchable = new Map(); // index -> all texts in lower case, made when first searched

function fillFilters() {
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  for (const [id, key] of Object.entries(KEYS)) {
    const values = [...new Set(episodes.map((record) => String(key(record))))].sort(compare);
    byId(id).append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    byId(id).addEventListener("change", filter);
  }
  for (const id of TYPED) byId(id).addEventListener("input", filter);
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
  byId("list").replaceChildren(...shown.map((index) => entryOf(index).parentNode));
  if (shown.includes(current)) words ? show(current) : mark(current);
  else if (shown.length) show(shown[0]);
  else byId("episode").replaceChildren(element("p", "soft", episodes.length ? "No episode is like this." : "No episode is stored."));
}

function entryOf(index) {
  if (!entries.has(index)) entries.set(index, entry(index));
  return entries.get(index);
}

function entry(index) {
  const record = episodes[index];
  const turns = record.episode.turns;
  const passed = `${turns.filter((turn) => turn.passed).length}/${turns.length} turns`;
  const parts = components(record.episode);
  const button = element("button", "",
    element("span", "", taskOf(record)),
    element("span", "score", number(record.score)),
    element("small", "", `${record.stage} ${record.split}, step ${record.step}, sample ${record.session_id}`),
    element("small", "score", `${asAWhole(record.episode) ? verdict(record.episode) : passed}, ${stopOf(record)}`),
    parts ? element("small", "wide", parts) : null,
    element("small", "wide", (turns[0]?.user ?? "").slice(0, 80)),
  );
  button.type = "button";
  button.tabIndex = -1; // Tab stops at the chosen one only, the arrows go on from there
  button.addEventListener("click", () => show(index));
  element("li", "", button);
  return button;
}

function show(index) {
  if (entries.has(current)) {
    entries.get(current).removeAttribute("aria-current");
    entries.get(current).tabIndex = -1;
  }
  current = index;
  const record = episodes[index];
  byId("episode").replaceChildren(episodeView(record, taskOf(record), tasks[`${environmentOf(record)}/${record.task_id}`] ?? {}));
  markWords(byId("episode"), byId("search").value.toLowerCase());
  if (document.body.dataset.ready) history.replaceState(null, "", `#episode=${encodeURIComponent(idOf(record))}`);
  reachable(byId("episode"));
  mark(index);
}

function mark(index) {
  const [list, button] = [byId("list"), entryOf(index)];
  button.setAttribute("aria-current", true);
  button.tabIndex = 0;
  const above = button.getBoundingClientRect().top - list.getBoundingClientRect().top - list.clientTop;
  const below = above + button.offsetHeight - list.clientHeight;
  if (above < 0) list.scrollTop += above; // scrollIntoView would move the page as well
  else if (below > 0) list.scrollTop += below;
}

// The searched words, marked wherever they stand.
function markWords(root, words) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (words && walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    for (let rest = node, at; (at = rest.data.toLowerCase().indexOf(words)) >= 0; ) {
      const found = rest.splitText(at);
      rest = found.splitText(words.length);
      found.replaceWith(element("mark", "", found.data));
    }
  }
}

// What scrolls can be scrolled with the keys.
function reachable(root) {
  for (const box of root.querySelectorAll("div.text, .scroll")) {
    if (box.scrollHeight > box.clientHeight || box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}

const idOf = (record) => [record.stage, record.split, record.step, record.task_id, record.session_id].join("/");

// `#episode=ID` in the address names the episode that is shown.
function follow() {
  if (!location.hash.startsWith("#episode=")) return;
  const id = decodeURIComponent(location.hash.slice("#episode=".length));
  const index = episodes.findIndex((record) => idOf(record) === id);
  if (!episodes[index]) return;
  for (const id of [...Object.keys(KEYS), ...TYPED]) byId(id).value = "";
  filter();
  show(index);
  byId("viewer").scrollIntoView();
}

decode(byId("data").textContent).then(
  (found) => {
    ({ episodes, tasks } = found);
    several = new Set(episodes.map(environmentOf)).size > 1;
    fillFilters();
    filter();
    follow();
    addEventListener("hashchange", follow);
    performance.mark("usable");
    document.body.dataset.ready = "true";
  },
  (error) => byId("episode").replaceChildren(element("p", "bad", `The episodes could not be read: ${error}`)),
);
