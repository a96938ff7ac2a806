// The keys: everything that the mouse can do in the viewer. The page's dialog says which they are.
"use strict";

// The chosen entry of the list gets the focus, so that the arrows, and a screen reader, go on from it.
function choose(place) {
  if (!shown.length) return;
  show(shown[Math.min(Math.max(place, 0), shown.length - 1)]);
  entryOf(current).focus({ preventScroll: true });
  const { top } = byId("viewer").getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) byId("viewer").scrollIntoView();
}

function turn(by) {
  const turns = [...byId("episode").querySelectorAll(".turn")];
  const here = turns.indexOf(document.activeElement?.closest(".turn"));
  const next = turns[Math.max(here + by, 0)];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView();
}

const move = (by) => choose(shown.indexOf(current) + by);

const ACTIONS = {
  j: () => move(1),
  k: () => move(-1),
  n: () => turn(1),
  p: () => turn(-1),
  "/": () => byId("search").focus(),
  f: () => byId("stage").focus(),
  d: () => byId("theme").click(),
  "?": () => byId("keys").showModal(),
  Escape: () => document.activeElement?.closest("#filters, #episode") && choose(shown.indexOf(current)),
};
const IN_LIST = { ArrowDown: ACTIONS.j, ArrowUp: ACTIONS.k, Home: () => choose(0), End: () => choose(shown.length - 1) };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const typing = /INPUT|SELECT/.test(event.target.tagName) && event.key !== "Escape";
  const action = typing ? null : (byId("list").contains(event.target) && IN_LIST[event.key]) || ACTIONS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

byId("help").addEventListener("click", () => byId("keys").showModal());
