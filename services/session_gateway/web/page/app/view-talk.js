// @ts-check
/** The button to talk with. */

import { Component, createRef, html } from "./html.js";
import * as icons from "./icons.js";

/** @import { Text, TextKey } from "./texts.js" */
/** @import { Side, Talk, TalkPhase } from "./types.js" */

/** @type {Record<TalkPhase, [TextKey, TextKey | ""]>} */
const LABELS = {
  preparing: ["talk.preparing", ""],
  recording: ["talk.recording", "talk.release"],
  listening: ["talk.listening", "talk.stop"],
  hearing: ["talk.hearing", "talk.stop"],
  paused: ["talk.paused", "talk.wait"],
};

/**
 * @typedef {object} TalkControls
 * @property {number} level of the microphone, from 0 to 1.
 * @property {(side: Side) => void} press
 * @property {() => void} release
 * @property {(side: Side) => void} toggle
 *
 * @typedef {object} TalkProps
 * @property {Side} side
 * @property {{ readonly talk: Talk | null, readonly handsFree: boolean }} state
 * @property {Text} text
 * @property {TalkControls} controller
 * @property {string} describedBy
 * @property {boolean} disabled
 */

/** @extends {Component<TalkProps>} */
export class TalkButton extends Component {
  #button = /** @type {import("preact").RefObject<HTMLButtonElement>} */ (createRef());
  #frame = 0;
  /** What holds the button: the id of a pointer, or a key. @type {number | string | null} */
  #holder = null;

  /** Shows how loud it is, without rendering anything anew. */
  #meter = () => {
    const { state, side, controller } = this.props;
    const isOn = state.talk?.side === side;
    // Loudness is heard as the logarithm of the level: -50 dB to full scale.
    const level = 1 + Math.log10(Math.max(controller.level, 0.003)) / 2.5;
    this.#button.current?.style.setProperty("--level", isOn ? level.toFixed(2) : "0");
    this.#frame = isOn ? requestAnimationFrame(this.#meter) : 0;
  };

  /** @override */
  componentDidUpdate() {
    if (this.#frame === 0 && this.props.state.talk?.side === this.props.side) {
      this.#meter();
    }
  }

  /** @override */
  componentWillUnmount() {
    cancelAnimationFrame(this.#frame);
  }

  get #handsFree() {
    return this.props.state.handsFree;
  }

  #onPointerDown = (/** @type {PointerEvent} */ event) => {
    if (this.#handsFree || event.button !== 0) {
      return;
    }
    if (this.#press(event.pointerId)) {
      // A finger that slides off still ends it.
      this.#button.current?.setPointerCapture(event.pointerId);
    }
  };

  #onPointerEnd = (/** @type {PointerEvent} */ event) => {
    if (event.pointerId === this.#holder) {
      this.#onRelease();
    }
  };

  /**
   * @param {number | string} holder
   * @returns {boolean} false if another finger or key holds the button already.
   */
  #press(holder) {
    const { state, side, controller } = this.props;
    if (this.#holder !== null && state.talk?.side === side) {
      return false;
    }
    this.#holder = holder;
    controller.press(side);
    return true;
  }

  #onRelease = () => {
    const { state, side, controller } = this.props;
    this.#holder = null;
    if (!this.#handsFree && state.talk?.side === side) {
      controller.release();
    }
  };

  #onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (this.#handsFree || (event.key !== " " && event.key !== "Enter")) {
      return;
    }
    event.preventDefault();
    if (!event.repeat) {
      this.#press(event.key);
    }
  };

  #onKeyUp = (/** @type {KeyboardEvent} */ event) => {
    if (!this.#handsFree && (event.key === " " || event.key === "Enter")) {
      event.preventDefault();
      if (event.key === this.#holder) {
        this.#onRelease();
      }
    }
  };

  #onClick = (/** @type {MouseEvent} */ event) => {
    const { state, side, controller } = this.props;
    if (this.#handsFree) {
      controller.toggle(side);
    } else if (event.detail === 0) {
      // From a screen reader, which cannot hold a button: the next one ends it.
      if (state.talk?.side === side) {
        controller.release();
      } else {
        controller.press(side);
      }
    }
  };

  /** @override */
  render() {
    const { side, state, text, describedBy, disabled } = this.props;
    const { talk, handsFree } = state;
    const phase = talk?.side === side ? talk.phase : null;
    const [label, note] =
      phase === null
        ? /** @type {const} */ ([handsFree ? "talk.tap" : "talk.hold", ""])
        : LABELS[phase];
    return html`<button
      type="button"
      class="talk"
      data-action="talk"
      data-phase=${phase ?? "off"}
      aria-pressed=${phase !== null}
      aria-describedby=${describedBy}
      disabled=${disabled}
      ref=${this.#button}
      onPointerDown=${this.#onPointerDown}
      onPointerUp=${this.#onPointerEnd}
      onPointerCancel=${this.#onPointerEnd}
      onLostPointerCapture=${this.#onPointerEnd}
      onKeyDown=${this.#onKeyDown}
      onKeyUp=${this.#onKeyUp}
      onBlur=${this.#onRelease}
      onClick=${this.#onClick}
      onContextMenu=${(/** @type {Event} */ event) => event.preventDefault()}
    >
      <span class="talk-mark">${icons.microphone()}</span>
      <span class="talk-words">
        <span class="talk-label">${text(label)}</span>
        ${note !== "" && html`<span class="talk-note">${text(note)}</span>`}
      </span>
    </button>`;
  }
}
