// @ts-check
/** A list that follows what is added at its end. */

import { Component, createRef, html } from "./html.js";

/** @import { Children } from "./html.js" */

/** How near to its end a list has to be to follow new lines. */
const NEAR_PX = 80;

/**
 * @typedef {object} ListProps
 * @property {"group" | "log"} role log: screen readers read what is added.
 * @property {string} label
 * @property {unknown} shown changes with what is shown.
 * @property {Children} [children]
 */

/** @extends {Component<ListProps>} */
export class FollowingList extends Component {
  #box = /** @type {import("preact").RefObject<HTMLDivElement>} */ (createRef());
  #follows = true;
  /** @type {unknown} */
  #shown = null;
  /** The box becomes smaller, for example above an alert. */
  #resizes = new ResizeObserver(() => this.#toEnd());

  #onScroll = () => {
    const box = this.#box.current;
    if (box !== null) {
      this.#follows = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
    }
  };

  /** Follows what is said, unless somebody is reading what was said before. */
  #follow() {
    const { shown } = this.props;
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.#toEnd();
    }
  }

  #toEnd() {
    const box = this.#box.current;
    if (box !== null && this.#follows) {
      box.scrollTop = box.scrollHeight;
    }
  }

  /** @override */
  componentDidMount() {
    if (this.#box.current !== null) {
      this.#resizes.observe(this.#box.current);
    }
    this.#follow();
  }

  /** @override */
  componentWillUnmount() {
    this.#resizes.disconnect();
  }

  /** @override */
  componentDidUpdate() {
    this.#follow();
  }

  /** @override */
  render() {
    const { role, label, children } = this.props;
    return html`<div
      class="list"
      tabindex="0"
      role=${role}
      aria-label=${label}
      ref=${this.#box}
      onScroll=${this.#onScroll}
    >
      ${children}
    </div>`;
  }
}
