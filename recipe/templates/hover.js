// The values of a figure's lines at the step under the pointer.
"use strict";

for (const figure of document.querySelectorAll("figure[data-hover]")) {
  const { place: [left, bottom, right, top, first, last], lines } = JSON.parse(figure.dataset.hover);
  const tip = element("div", "tip");
  tip.hidden = true;
  figure.append(tip);
  figure.addEventListener("pointermove", (event) => {
    const box = figure.querySelector("svg").getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) / box.width, 1 - (event.clientY - box.top) / box.height];
    const at = first + ((x - left) / (right - left)) * (last - first);
    const found = lines.flatMap(([name, points]) => {
      if (!points.length) return [];
      const [step, value] = points.reduce((one, other) => (Math.abs(other[0] - at) < Math.abs(one[0] - at) ? other : one));
      return [`step ${step}  ${value.toPrecision(4)}${lines.length > 1 ? `  ${name}` : ""}`];
    });
    tip.hidden = x < left || x > right || y < bottom || y > top || !found.length;
    tip.textContent = found.join("\n");
    tip.style.left = x < 0.5 ? `${100 * x + 3}%` : "auto";
    tip.style.right = x < 0.5 ? "auto" : `${100 - 100 * x + 3}%`;
    tip.style.top = "1.6rem";
  });
  figure.addEventListener("pointerleave", () => (tip.hidden = true));
}
