// @ts-check
/** Beside the captions of a speaker: how others come in, and who is there. */

import { Component, createRef, html } from "../app/html.js";
import { languageNameIn } from "../app/texts.js";
import { isReachable } from "./link.js";
import { qrCode } from "./qr.js";
import { audienceOf } from "./state.js";

/** @import { RoomText } from "./texts.js" */
/** @import { State } from "./types.js" */
/** @import { ViewProps } from "./view-page.js" */

/** How long "Copied" is shown. */
const COPIED_MS = 3000;

/** @param {ViewProps} props */
export function Panel({ state, text, controller }) {
  const isHost = state.invitation?.role === "host";
  return html`<aside id="panel" class="panel" aria-label=${text("panel.name")} data-role="panel">
    ${isHost && html`<${Invite} ...${{ state, text }} />`}
    <${People} ...${{ state, text }} />
    <div class="buttons">
      <button
        type="button"
        class="main panel-done"
        data-action="panel-done"
        onClick=${() => controller.setPanel(false)}
      >
        ${text("panel.close")}
      </button>
      ${
        isHost &&
        html`<button
          type="button"
          class="second danger"
          data-action="close-room"
          onClick=${() => controller.setClosing(true)}
        >
          ${text("close.button")}
        </button>`
      }
    </div>
  </aside>`;
}

/** @param {{ state: State, text: RoomText }} props */
function Invite({ state: { links }, text }) {
  return html`<section class="invite" data-role="invite">
    <h2>${text("invite.heading")}</h2>
    ${
      links.listener === ""
        ? html`<p class="hint" role="status">${text("invite.making")}</p>`
        : html`<${Code} link=${links.listener} label=${text("invite.code")} />
            <${CopyLink} ...${{ link: links.listener, role: "listener", text }} />
            <${CopyLink} ...${{ link: links.speaker, role: "speaker", text }} />`
    }
    ${
      !isReachable(location.hostname) &&
      html`<p class="hint warn" data-role="local">${text("invite.local")}</p>`
    }
  </section>`;
}

/** @extends {Component<{ link: string, label: string }>} */
class Code extends Component {
  /**
   * @override
   * @param {{ link: string, label: string }} next
   */
  shouldComponentUpdate(next) {
    return next.link !== this.props.link || next.label !== this.props.label;
  }

  /** @override */
  render() {
    const { link, label } = this.props;
    const { size, path } = qrCode(link);
    return html`<svg
      class="qr"
      data-role="qr"
      viewBox=${`0 0 ${size} ${size}`}
      role="img"
      aria-label=${label}
      shape-rendering="crispEdges"
    >
      <rect width=${size} height=${size} fill="#fff" />
      <path d=${path} fill="#000" />
    </svg>`;
  }
}

/**
 * @typedef {object} CopyProps
 * @property {string} link
 * @property {"listener" | "speaker"} role
 * @property {RoomText} text
 */

/** @extends {Component<CopyProps, { isCopied: boolean, isShown: boolean }>} */
class CopyLink extends Component {
  /** @override */
  state = { isCopied: false, isShown: false };
  #input = /** @type {import("preact").RefObject<HTMLInputElement>} */ (createRef());
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  #onCopy = async () => {
    clearTimeout(this.#timer);
    try {
      await navigator.clipboard.writeText(this.props.link);
      this.setState({ isCopied: true });
      this.#timer = setTimeout(() => this.setState({ isCopied: false }), COPIED_MS);
    } catch {
      // Not allowed, or not a secure page: the user can copy it by hand.
      this.setState({ isShown: true }, () => this.#input.current?.select());
    }
  };

  /** @override */
  componentWillUnmount() {
    clearTimeout(this.#timer);
  }

  /** @override */
  render() {
    const { link, role, text } = this.props;
    const { isCopied, isShown } = this.state;
    const id = `link-${role}`;
    return html`<div class="field copy" data-role=${id} data-link=${link}>
      <div class="copy-row">
        <span id=${id}>${text(`invite.${role}`)}</span>
        <button
          type="button"
          class="second"
          data-action="copy"
          aria-describedby=${id}
          onClick=${() => void this.#onCopy()}
        >
          ${text(isCopied ? "invite.copied" : "invite.copy")}
        </button>
      </div>
      ${
        isShown &&
        html`<input type="text" readonly value=${link} aria-labelledby=${id} ref=${this.#input} />`
      }
      <span class="visually-hidden" role="status">${isCopied ? text("invite.copied") : ""}</span>
    </div>`;
  }
}

/** @param {{ state: State, text: RoomText }} props */
function People({ state, text }) {
  const { interface: shown, sessionId } = state;
  const { listeners, languages, speakers } = audienceOf(state);
  return html`<section class="people" data-role="people">
    <h2>${text("people.heading")}</h2>
    <p class="hint" data-role="listeners" data-count=${listeners}>
      ${listeners === 0 ? text("people.none") : text("people.listeners", { count: listeners })}
    </p>
    <ul data-role="languages">
      ${languages.map(
        ({ language, listeners: count, speechListeners, waiting }) =>
          html`<li key=${language} data-language=${language} data-count=${count}>
            <span>${languageNameIn(language, shown)}</span>
            <span class="count">
              ${waiting > 1 && html`<em>${text("people.waiting", { count: waiting })}</em>`}
              ${
                speechListeners > 0 &&
                html`<small>${text("people.withSound", { count: speechListeners })}</small>`
              }
              <strong>${count}</strong>
            </span>
          </li>`,
      )}
    </ul>
    <h3>${text("people.speakers")}</h3>
    <ul data-role="speakers">
      ${speakers.map(
        (each) =>
          html`<li key=${each.sessionId} data-language=${each.language}>
            <span dir="auto">
              ${each.name || text("people.unnamed")}
              ${each.sessionId === sessionId && html`<small> (${text("people.you")})</small>`}
            </span>
            <span class="count">${languageNameIn(each.language, shown)}</span>
          </li>`,
      )}
    </ul>
  </section>`;
}
