// Charts over time, drawn as SVG: stacked bars or lines, with a table of the same numbers behind.
// What a mark is, is told by its shape and its legend; colour only repeats it.

import { draw, make } from "../dom.js";

const WIDTHS = { wide: 640, narrow: 360 }; // so that letters stay as large as they are elsewhere
const LABEL_WIDTH = 90;
const HEIGHT = 180;
const LEFT = 56;
const BOTTOM = 22;
const TOP = 8;
const TICKS = 3;
const DASHES = ["", "6 4", "2 3"]; // of lines, so that they are told apart without colour
const HATCHES = [null, "rising", "dots"]; // of bars, likewise

/**
 * A chart with its title, legend and table: a figure. `series` are [{title, values}], one value for
 * each slot, null = not known; `slots` are [{label, title}]; `form` is "bars" or "lines"; `show`
 * says a value in words.
 */
export function chartOf({ title, said, slots, series, form, show }) {
  const width = matchMedia("(max-width: 44rem)").matches ? WIDTHS.narrow : WIDTHS.wide;
  const top = niceTop(topOf(series, form));
  const figure = make(
    "figure",
    { className: "chart" },
    make(
      "figcaption",
      {},
      make("h2", { textContent: title }),
      make("p", { className: "chart-said", textContent: said }),
    ),
  );
  const picture = draw("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`,
    role: "img",
    "aria-label": `${title}: ${said}. The table below has the numbers.`,
    class: "chart-picture",
  });
  picture.append(patternsOf(), ...gridOf(top, slots, show, width));
  if (form === "bars") picture.append(...barsOf(series, slots, top, show, width));
  else picture.append(...linesOf(series, slots, top, width));
  figure.append(legendOf(series, form), picture, tableOf(title, slots, series, show));
  return figure;
}

function topOf(series, form) {
  const count = series[0].values.length;
  let top = 0;
  for (let at = 0; at < count; at += 1) {
    const values = series.map(({ values: all }) => all[at] ?? 0);
    const value = form === "bars" ? values.reduce((sum, one) => sum + one, 0) : Math.max(...values);
    top = Math.max(top, value);
  }
  return top;
}

/** The next number that people read easily. */
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((one) => one * power >= value * 0.999);
  return factor * power;
}

function yOf(value, top) {
  return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
}

function xOf(at, count, width) {
  return LEFT + ((width - LEFT) * at) / count;
}

function gridOf(top, slots, show, width) {
  const nodes = [];
  for (let tick = 0; tick <= TICKS - 1; tick += 1) {
    const value = (top * tick) / (TICKS - 1);
    const y = yOf(value, top);
    nodes.push(
      draw("line", { class: "grid", x1: LEFT, x2: width, y1: y, y2: y }),
      draw("text", { class: "axis", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, show(value)),
    );
  }
  const every = Math.max(1, Math.ceil((slots.length * LABEL_WIDTH) / (width - LEFT)));
  slots.forEach(({ label }, at) => {
    if (at % every !== 0 || slots.length - at < every / 2) return;
    const x = xOf(at + 0.5, slots.length, width);
    const anchor = at === 0 ? "start" : "middle";
    const place = { class: "axis", x: at === 0 ? LEFT : x, y: HEIGHT - 6, "text-anchor": anchor };
    nodes.push(draw("text", place, label));
  });
  return nodes;
}

function barsOf(series, slots, top, show, width) {
  const nodes = [];
  const step = (width - LEFT) / slots.length;
  const bar = Math.max(1.5, step * 0.72);
  slots.forEach((slot, at) => {
    let sum = 0;
    const parts = [];
    series.forEach(({ values }, number) => {
      const value = values[at] ?? 0;
      if (value <= 0) return;
      const y = yOf(sum + value, top);
      const x = xOf(at, slots.length, width) + (step - bar) / 2;
      const place = { x, y, width: bar, height: yOf(sum, top) - y };
      parts.push(draw("rect", { ...place, class: `series-${number}` }));
      if (HATCHES[number]) parts.push(draw("rect", { ...place, fill: `url(#${HATCHES[number]})` }));
      sum += value;
    });
    const words = series.map(({ title, values }) => `${title}: ${show(values[at] ?? 0)}`);
    const cover = { x: xOf(at, slots.length, width), y: TOP, width: step, height: HEIGHT - TOP - BOTTOM };
    nodes.push(
      draw(
        "g",
        { class: "slot" },
        draw("title", {}, `${slot.title}\n${words.join("\n")}`),
        draw("rect", { ...cover, class: "cover" }),
        ...parts,
      ),
    );
  });
  return nodes;
}

function linesOf(series, slots, top, width) {
  return series.flatMap(({ values }, number) => {
    const points = values.map((value, at) =>
      value === null ? null : [xOf(at + 0.5, slots.length, width), yOf(value, top)],
    );
    const marks = points.filter(Boolean).map(([x, y]) => markOf(number, x, y));
    let isOn = false;
    let path = "";
    for (const point of points) {
      if (point) path += `${isOn ? "L" : "M"}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
      isOn = point !== null;
    }
    const line = { class: `line series-${number}`, d: path, "stroke-dasharray": DASHES[number] };
    return [draw("path", line), ...marks];
  });
}

/** A circle, a square, a triangle. */
function markOf(number, x, y) {
  const name = { class: `dot series-${number}` };
  if (number === 0) return draw("circle", { ...name, cx: x, cy: y, r: 2.5 });
  if (number === 1) return draw("rect", { ...name, x: x - 2.5, y: y - 2.5, width: 5, height: 5 });
  return draw("path", { ...name, d: `M${x - 3} ${y + 3}h6l-3 -6z` });
}

function patternsOf() {
  const rising = draw(
    "pattern",
    { id: "rising", width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    draw("path", { class: "hatch", d: "M-1 7L7 -1M-1 1L1 -1M5 7L7 5" }),
  );
  const dots = draw(
    "pattern",
    { id: "dots", width: 5, height: 5, patternUnits: "userSpaceOnUse" },
    draw("circle", { class: "hatch-dot", cx: 2.5, cy: 2.5, r: 1 }),
  );
  return draw("defs", {}, rising, dots);
}

function legendOf(series, form) {
  const items = series.map(({ title }, number) => {
    const sample = draw("svg", { viewBox: "0 0 20 12", class: "legend-sample", "aria-hidden": "true" });
    if (form === "bars") {
      sample.append(draw("rect", { class: `series-${number}`, width: 20, height: 12, rx: 2 }));
      if (HATCHES[number]) sample.append(draw("rect", { width: 20, height: 12, fill: `url(#${HATCHES[number]})` }));
    } else {
      sample.append(
        draw("path", { class: `line series-${number}`, d: "M0 6H20", "stroke-dasharray": DASHES[number] }),
        markOf(number, 10, 6),
      );
    }
    return make("li", {}, sample, title);
  });
  return make("ul", { className: "legend", hidden: series.length < 2 }, ...items);
}

function tableOf(title, slots, series, show) {
  const fold = make("details", { className: "unfold" }, make("summary", { textContent: "Table" }));
  const build = () => {
    fold.removeEventListener("toggle", build);
    const head = ["When", ...series.map((one) => one.title)];
    const rows = slots.map((slot, at) =>
      make(
        "tr",
        {},
        make("th", { scope: "row", textContent: slot.title }),
        ...series.map(({ values }) =>
          make("td", { className: "num", textContent: values[at] === null ? "–" : show(values[at]) }),
        ),
      ),
    );
    const table = make(
      "table",
      { className: "table chart-table" },
      make("caption", { className: "unseen", textContent: title }),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...head.map((text, at) =>
            make("th", { scope: "col", className: at ? "num" : "", textContent: text }),
          ),
        ),
      ),
      make("tbody", {}, ...rows),
    );
    const place = { className: "chart-rows", tabIndex: 0, role: "region", "aria-label": `${title}, table` };
    fold.append(make("div", place, table));
  };
  fold.addEventListener("toggle", build);
  return fold;
}
