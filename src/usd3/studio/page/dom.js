/** Small helpers to build the page: elements, icons, downloads. */

/**
 * An element with attributes, listeners and children.
 * @param {string} tag
 * @param {Object} [properties] `class`, `text`, `on: {event: listener}`, `data: {...}`; all others are attributes,
 *   of which `true` sets an empty one and `false`, `null` and `undefined` set none.
 * @param {...(Node|string|null|undefined|false)} children
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name === "on") Object.entries(value).forEach(([event, listener]) => element.addEventListener(event, listener));
    else if (name === "data") Object.assign(element.dataset, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A button that is not a submit button. */
export function button(label, listener, { icon: name, title, pressed, ...rest } = {}) {
  const content = [name ? icon(name) : null, label ? h("span", { text: label }) : null];
  return h("button", {
    type: "button", title, "aria-label": label ? null : title, "aria-pressed": pressed === undefined ? null : String(pressed), on: { click: listener }, ...rest,
  }, ...content);
}

/** Paths of icons on a grid of 24, drawn with lines. */
const ICONS = {
  undo: "M9 7 4 12l5 5M4 12h10a6 6 0 0 1 0 12",
  redo: "M15 7l5 5-5 5M20 12H10a6 6 0 0 0 0 12",
  share: "M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 6 6l1-1",
  theme: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  help: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18v.01M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18z",
  dice: "M5 4h14a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1zM8.5 8.5v.01M15.5 8.5v.01M12 12v.01M8.5 15.5v.01M15.5 15.5v.01",
  play: "M7 4.5v15l12-7.5z",
  pause: "M8 5v14M16 5v14",
  stop: "M6 6h12v12H6z",
  loop: "M4 12V9a3 3 0 0 1 3-3h11M15 3l3 3-3 3M20 12v3a3 3 0 0 1-3 3H6M9 21l-3-3 3-3",
  pencil: "M4 20l1-5L16 4l4 4L9 19zM14 6l4 4",
  eraser: "M9 19H20M5 14l8-9 7 6-7 8H9z",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  unlock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 6.8-1",
  select: "M4 8V4h4M16 4h4v4M20 16v4h-4M8 20H4v-4M12 4h.01M12 20h.01M4 12h.01M20 12h.01",
  close: "M6 6l12 12M18 6 6 18",
  open: "M4 19V6h5l2 2h9v11zM4 11h16",
  save: "M12 4v11M7.5 11l4.5 4.5 4.5-4.5M4 20h16",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  volume: "M4 10v4h3l4 4V6L7 10zM15 9a4 4 0 0 1 0 6M17.5 6.5a8 8 0 0 1 0 11",
  clear: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  star: "M12 4l2.4 5 5.6.7-4.1 3.8 1.1 5.5-5-2.8-5 2.8 1.1-5.5L4 9.7 9.600 9z",
  compare: "M9 4v16M4 7h5M4 17h5M15 4v16M20 7h-5M20 17h-5",
  down: "M6 9l6 6 6-6",
  melody: "M9 18V6l10-2v11M9 18a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0zM19 15a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0z",
  chorale: "M4 6h7M14 6h6M4 10h4M11 10h9M4 14h9M16 14h4M4 18h5M12 18h8",
  board: "M4 4h16v16H4zM4 9.300h16M4 14.700h16M9.300 4v16M14.700 4v16",
  text: "M5 6h14M5 10h14M5 14h5M13 14h6M5 18h8",
  sequence: "M7 3c0 6 10 6 10 12 0 3-2 5-5 6M17 3c0 6-10 6-10 12 0 3 2 5 5 6M9 6h6M9 17.500h6",
  table: "M4 5h16v14H4zM4 10h16M10 5v14",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9v.01",
  array: "M5 5h3v3H5zM10.500 5h3v3h-3zM16 5h3v3h-3zM5 10.500h3v3H5zM10.500 10.500h3v3h-3zM16 10.500h3v3h-3zM5 16h3v3H5zM10.500 16h3v3h-3zM16 16h3v3h-3z",
};

/** Whether there is an icon of this name. */
export const hasIcon = (name) => Object.hasOwn(ICONS, name);

/** A decorative icon: hidden from screen readers. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const shift = name === "undo" || name === "redo" ? "0 2 24 24" : "0 0 24 24";
  for (const [key, value] of Object.entries({ viewBox: shift, class: "icon", "aria-hidden": "true", focusable: "false" })) {
    svg.setAttribute(key, value);
  }
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Replace what a button shows, and its label. */
export function relabel(element, { icon: name, label, title }) {
  element.replaceChildren(...[name ? icon(name) : null, label ? h("span", { text: label }) : null].filter(Boolean));
  if (title) {
    element.title = title;
    if (!label) element.setAttribute("aria-label", title);
  }
}

/** Offer bytes as a file to save. */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name, class: "hidden" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Ask for one file; null where the user chose none. */
export function chooseFile(endings) {
  return new Promise((resolve) => {
    const input = h("input", { type: "file", accept: endings.join(","), class: "hidden", "aria-hidden": "true", tabindex: -1 });
    input.addEventListener("change", () => { resolve(input.files[0] ?? null); input.remove(); });
    input.addEventListener("cancel", () => { resolve(null); input.remove(); });
    document.body.append(input);
    input.click();
  });
}

/** Whether the user asked their system for less motion. */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A 2D context of a canvas of `width` by `height` CSS pixels, sharp on dense screens. */
export function sharp(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [w, h_] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h_) {
    canvas.width = w;
    canvas.height = h_;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The value of a colour that style.css defines, such as `colour("--accent")`. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
