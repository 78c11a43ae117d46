/** The way from noise to the result: a slider over the frames of the last draw. */

import { button, calm, h, relabel } from "./dom.js";

const SECONDS = 4; // of a replay

export class Timeline {
  #frames = [];
  #timer = 0;

  /** @param {HTMLElement} element @param {(frame: Object|null) => void} show null: the result */
  constructor(element, show) {
    this.element = element;
    this.show = show;
    this.play = button("", () => (this.#timer ? this.pause() : this.replay()), { icon: "play", title: "Watch the denoising" });
    this.slider = h("input", { type: "range", min: 0, max: 0, value: 0, step: 1, "aria-label": "Step of the denoising" });
    this.text = h("output", { class: "step", "aria-live": "off" });
    this.slider.addEventListener("input", () => { this.pause(); this.#go(Number(this.slider.value)); });
    element.replaceChildren(this.play, h("span", { class: "end", text: "noise" }), this.slider, this.text);
  }

  get frames() { return this.#frames; }

  /** Forget all frames. */
  clear() {
    this.pause();
    this.#frames = [];
    this.element.hidden = true;
  }

  /** A new frame while drawing. Where an object is drawn again, the frames begin anew. */
  add(frame) {
    if (this.#frames.length && frame.step <= this.#frames.at(-1).step) this.#frames = [];
    this.#frames.push(frame);
    this.element.hidden = false;
    this.#mark(this.#frames.length - 1);
  }

  /** The draw is done: the last place of the slider is its result. */
  finish() { if (this.#frames.length) this.#mark(this.#frames.length); }

  /** Go back to the result, such as after an edit. */
  rest() {
    this.pause();
    this.finish();
  }

  pause() {
    clearInterval(this.#timer);
    this.#timer = 0;
    relabel(this.play, { icon: "play", title: "Watch the denoising" });
  }

  replay() {
    this.pause();
    if (calm()) return this.#go(0);
    let index = Number(this.slider.value) >= this.#frames.length ? 0 : Number(this.slider.value);
    relabel(this.play, { icon: "pause", title: "Pause" });
    this.#timer = setInterval(() => {
      if (index > this.#frames.length) this.pause();
      else this.#go(index++);
    }, (SECONDS * 1000) / (this.#frames.length + 1));
  }

  #go(index) {
    this.#mark(index);
    this.show(this.#frames[index] ?? null);
  }

  #mark(index) {
    const frame = this.#frames[index];
    this.slider.max = this.#frames.length;
    this.slider.value = index;
    const text = frame ? `step ${frame.step} of ${frame.steps}` : "result";
    this.text.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }
}
