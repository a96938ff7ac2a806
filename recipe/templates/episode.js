// One episode as elements of the page. Whatever a model wrote reaches it through text nodes only.
"use strict";

const byId = (id) => document.getElementById(id);

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null && child !== undefined)); // strings become text nodes
  return made;
}

const number = (value) => (typeof value === "number" ? String(Math.round(value * 1000) / 1000) : "");
const text = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? ""));

const stopOf = (record) => record.episode.stop_reason ?? "running";

// An environment may judge no turn but the episode: then its outcome says what the turns cannot.
const asAWhole = (episode) => episode.turns.length > 0 && episode.turns.every((turn) => turn.passed === null);
const verdict = (episode) => (!episode.outcome ? "not judged" : episode.outcome.passed ? "passed" : "not passed");
const components = (episode) =>
  Object.entries(episode.outcome?.components ?? {}).map(([name, value]) => `${name} ${number(value)}`).join(", ");

const WAITED = { generate: "engine", environment: "environment", user: "user", reward: "reward" };

// What a stored line says of its time; those of earlier releases say less.
function timeOf({ seconds }) {
  const said = Object.entries(WAITED).filter(([name]) => typeof seconds?.[name] === "number" && seconds[name] > 0);
  const parts = said.map(([name, title]) => `${title} ${number(seconds[name])} s`);
  if (typeof seconds?.total === "number") parts.unshift(`${number(seconds.total)} s in all`);
  return parts.map((part) => `, ${part}`).join("");
}

function episodeView(record, name, task) {
  const metrics = Object.entries(record.reward ?? {}).map(([metric, value]) =>
    element("tr", "", element("td", "", metric), element("td", "number", number(value))),
  );
  return element("div", "",
    element("h3", "", name, element("span", "badge", `score ${number(record.score)}`), element("span", "badge", stopOf(record)), outcomeBadge(record.episode)),
    components(record.episode) ? element("p", "", `judgement: ${components(record.episode)}`) : null,
    element("p", "soft", `${record.stage} ${record.split}, step ${record.step}, sample ${record.session_id}` +
      (record.prompt_tokens ? `, ${record.prompt_tokens} prompt tokens, ${record.response_tokens} response tokens, ${record.engine_tokens} of them the model's` : "") + timeOf(record)),
    record.episode.fault ? element("div", "text error", record.episode.fault) : null,
    element("details", "", element("summary", "", "metrics"), element("table", "", ...metrics)),
    task.system ? element("details", "", element("summary", "", "system prompt and functions"), element("pre", "", task.system)) : null,
    record.episode.given?.length ? element("p", "soft", `gold played the first ${record.episode.given.length} turns`) : null,
    ...[...(record.episode.given ?? []), ...record.episode.turns].map((turn, position) => turnView(turn, position, task.gold?.[position] ?? [])),
    rawView(record),
  );
}

function outcomeBadge(episode) {
  if (!asAWhole(episode)) return null;
  const look = !episode.outcome ? "soft" : episode.outcome.passed ? "good" : "bad";
  return element("span", `badge ${look}`, `episode ${verdict(episode)}`);
}

// The stored line, written when it is opened: it is long.
function rawView(record) {
  const text = element("pre", "");
  const made = element("details", "", element("summary", "", "raw JSON"), text);
  made.addEventListener("toggle", () => (text.textContent = made.open ? JSON.stringify(record, null, 1) : ""));
  return made;
}

function goldView(calls) {
  const made = element("details", "", element("summary", "", "gold's calls"), element("div", "text", calls.join("\n")));
  made.open = true;
  return made;
}

function turnView(turn, position, gold) {
  const state = turn.passed ? "passed" : !turn.reached ? "unreached" : turn.passed === null ? "unjudged" : "failed";
  const words = { passed: "passed", failed: "not passed", unreached: "not reached", unjudged: "not judged by turn" };
  const title = element("h3", "", `Turn ${position + 1}`, element("span", `badge ${{ passed: "good", failed: "bad" }[state] ?? "soft"}`, words[state]));
  if (turn.reached && turn.facts.passed_official !== undefined && turn.passed !== turn.facts.passed_official) {
    title.append(element("span", "badge soft", turn.facts.passed_official ? "passed officially" : "not passed officially"));
  }
  if (turn.facts.has_gold === false) title.append(element("span", "badge soft", "nothing to call"));
  const made = element("section", `turn ${state}`, title, element("div", "text user", turn.user || "(no words; functions are revealed)"),
    gold.length ? goldView(gold) : null,
    ...turn.steps.map(stepView), turn.difference?.length ? differenceView(turn.difference) : null);
  made.tabIndex = -1; // the keys for turns put the focus here
  return made;
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

// What was expected beside what was found, place by place, and marked where the two part. BFCL says `actual` for `found`.
function differenceView(items) {
  const sides = ["expected", "actual", "found"];
  const places = [...new Set(items.flatMap((item) => Object.keys(item)))].filter((key) => !sides.includes(key));
  const rows = items.map((item) => {
    const [wanted, got] = parted(text(item.expected), text(item.actual ?? item.found));
    return element("tr", "", ...places.map((key) => element("td", "place", text(item[key]))), element("td", "text wanted", ...wanted), element("td", "text got", ...got));
  });
  const titles = [...places.map((key) => element("th", "place", key)), element("th", "", "expected"), element("th", "", "found")];
  const box = element("div", "scroll", element("table", "sides", element("tr", "", ...titles), ...rows));
  const count = `${items.length} difference${items.length === 1 ? "" : "s"} from gold`;
  const made = element("details", "", element("summary", "bad", count), box);
  made.open = true;
  return made;
}

// Two texts as nodes: what they begin with and end with in common stays as it is, the rest of each is marked.
function parted(left, right) {
  const shorter = Math.min(left.length, right.length);
  let from = 0;
  while (from < shorter && left[from] === right[from]) from++;
  let same = 0;
  while (same < shorter - from && left[left.length - 1 - same] === right[right.length - 1 - same]) same++;
  return [left, right].map((side) => {
    const middle = side.slice(from, side.length - same);
    const plain = from + same === 0 || !middle; // then there is nothing to mark, or no use in it
    return [side.slice(0, from), plain ? middle : element("mark", "", middle), side.slice(side.length - same)];
  });
}
