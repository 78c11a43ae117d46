/** Where steps and pitches lie on the canvas of the piano roll; zooming and scrolling. */

const WIDEST = 40; // pixels of a step
const ROWS = { least: 7, most: 18 }; // pixels of a pitch

const clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));

export class RollView {
  ruler = 26;
  lane = 20; // of rests, below the lowest pitch

  /** @param {{steps: number, low: number, high: number, usual: {low: number, high: number}}} size pitches of the instrument */
  constructor({ steps, low, high, usual }) {
    Object.assign(this, { steps, low, high, usual });
    this.width = this.height = 0;
    this.keys = 52;
    this.stepWidth = 0;
    this.left = 0;
    this.rowHeight = 14;
    this.top = usual.high;
  }

  get inner() { return this.width - this.keys; }
  get bottom() { return this.height - this.lane; }
  get rows() { return (this.bottom - this.ruler) / this.rowHeight; }
  get shownSteps() { return this.inner / this.stepWidth; }
  get narrowest() { return Math.min(this.inner / this.steps, WIDEST); }

  resize(width, height) {
    const first = this.width === 0;
    Object.assign(this, { width, height, keys: width < 500 ? 40 : 52 });
    if (first) {
      this.stepWidth = Math.max(this.narrowest, Math.min(width < 700 ? 9 : 11, WIDEST));
      this.fit(this.usual);
    }
    this.keep();
  }

  x(step) { return this.keys + (step - this.left) * this.stepWidth; }
  y(pitch) { return this.ruler + (this.top - pitch) * this.rowHeight; }
  stepAt(x) { return clamp(Math.floor(this.left + (x - this.keys) / this.stepWidth), 0, this.steps - 1); }
  pitchAt(y) { return clamp(Math.ceil(this.top - (y - this.ruler) / this.rowHeight), this.low, this.high); }
  isRest(y) { return y >= this.bottom; }

  /** Make all these pitches visible. */
  fit({ low, high }) {
    const wanted = high - low + 4;
    const space = this.bottom - this.ruler;
    this.rowHeight = clamp(space / Math.max(wanted, 24), ROWS.least, ROWS.most);
    this.top = (low + high) / 2 + space / this.rowHeight / 2;
    this.keep();
  }

  /** Make these pitches visible unless they are already. */
  reveal(range) {
    if (range && (range.high > this.top || range.low < this.top - this.rows + 1)) this.fit(range);
  }

  /** Scroll so that a step, and perhaps a pitch, is visible. */
  show(step, pitch) {
    if (step < this.left || step > this.left + this.shownSteps - 2) this.left = step - this.shownSteps * 0.2;
    if (pitch !== undefined && pitch > this.top - 1) this.top = pitch + 2;
    if (pitch !== undefined && pitch < this.top - this.rows + 2) this.top = pitch + this.rows - 2;
    this.keep();
  }

  /** Turn the page when the cursor of playing leaves it. */
  follow(step) {
    if (step < this.left || step > this.left + this.shownSteps * 0.96) {
      this.left = step - this.shownSteps * 0.06;
      this.keep();
    }
  }

  pan(dx, dy) {
    this.left -= dx / this.stepWidth;
    this.top += dy / this.rowHeight;
    this.keep();
  }

  zoom(factor, x = this.keys + this.inner / 2) {
    const step = this.left + (x - this.keys) / this.stepWidth;
    this.stepWidth = clamp(this.stepWidth * factor, this.narrowest, WIDEST);
    this.left = step - (x - this.keys) / this.stepWidth;
    this.keep();
  }

  /** Stay within the steps and pitches there are. */
  keep() {
    this.stepWidth = clamp(this.stepWidth, this.narrowest, WIDEST);
    this.left = clamp(this.left, 0, this.steps - this.shownSteps);
    const [most, least] = [this.high + 1, this.low - 1 + this.rows];
    this.top = least > most ? (least + most) / 2 : clamp(this.top, least, most);
  }
}
