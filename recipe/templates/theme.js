// Light or dark: as the system has it, or as the button says; what was chosen is kept where the browser allows it.
"use strict";

{
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const shown = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
  const other = () => (shown() === "dark" ? "light" : "dark");

  const keep = (theme) => {
    try {
      if (theme) localStorage.setItem("theme", theme);
      else localStorage.removeItem("theme");
    } catch {} // a browser that keeps nothing for pages opened from disk
  };

  try {
    const kept = localStorage.getItem("theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch {}

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const name = () => {
      button.textContent = other();
      button.title = `Show this page ${other() === "dark" ? "in the dark" : "in light"}`;
    };
    button.addEventListener("click", () => {
      const chosen = other();
      if (chosen === (system.matches ? "dark" : "light")) delete root.dataset.theme; // follows the system again
      else root.dataset.theme = chosen;
      keep(root.dataset.theme);
      name();
    });
    system.addEventListener("change", name);
    name();
  });
}
