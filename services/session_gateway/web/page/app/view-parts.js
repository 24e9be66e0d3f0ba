// @ts-check
/** Parts that several pages have: the connection, switches, problems, the token. */

import { Component, createRef, html } from "./html.js";
import * as icons from "./icons.js";
import { INTERFACES, reasonText } from "./texts.js";

/** @import { Children } from "./html.js" */
/** @import { Text } from "./texts.js" */
/** @import { Connection, Interface, Problem, TokenState } from "./types.js" */

/** @param {{ connection: Connection, text: Text }} props */
export function Connected({ connection, text }) {
  return html`<p class="connection" data-role="connection" data-state=${connection} role="status">
    <span class="dot" aria-hidden="true"></span>
    <span>${text(`connection.${connection}`)}</span>
  </p>`;
}

/**
 * @param {{
 *   handsFree: boolean,
 *   text: Text,
 *   controller: { setHandsFree(on: boolean): void },
 * }} props
 */
export function HandsFree({ handsFree, text, controller }) {
  return html`<button
    type="button"
    class="switch"
    data-action="hands-free"
    aria-pressed=${handsFree}
    title=${text("page.handsFree")}
    onClick=${() => controller.setHandsFree(!handsFree)}
  >
    ${icons.hands()}<span class="switch-name">${text("page.handsFree")}</span>
  </button>`;
}

/**
 * The language of the page.
 *
 * @param {{
 *   shown: Interface,
 *   text: Text,
 *   controller: { setInterface(chosen: Interface): void },
 * }} props
 */
export function InterfaceChoice({ shown, text, controller }) {
  return html`<span class="interface">
    ${icons.globe()}
    <select
      data-action="interface"
      aria-label=${text("page.interface")}
      value=${shown}
      onChange=${(/** @type {Event} */ event) => {
        const { value } = /** @type {HTMLSelectElement} */ (event.currentTarget);
        controller.setInterface(/** @type {Interface} */ (value));
      }}
    >
      ${INTERFACES.map(
        ([code, name]) =>
          html`<option value=${code} lang=${code} selected=${code === shown}>${name}</option>`,
      )}
    </select></span
  >`;
}

/**
 * A problem in words. Its children are buttons that help.
 *
 * @param {{ problem: Problem | null, shown: Interface, text: Text, children?: Children }} props
 */
export function Alert({ problem, shown, text, children }) {
  const { reason, detail } = problem ?? { reason: "", detail: "" };
  return html`<div class="alert" role="alert" data-reason=${reason} lang=${shown}>
    ${icons.warning()}
    <div class="alert-words">
      <p>${reasonText(text, "problem", reason)}</p>
      ${
        detail !== "" &&
        html`<details>
          <summary>${text("page.detail")}</summary>
          <p lang="en">${detail}</p>
        </details>`
      }
    </div>
    <div class="alert-tools">${children}</div>
  </div>`;
}

/**
 * @typedef {object} TokenProps
 * @property {TokenState} token
 * @property {Interface} shown
 * @property {Text} text
 * @property {{ useToken(token: string): Promise<void>, leaveToken(): void }} controller
 */

/** @extends {Component<TokenProps>} */
export class TokenDialog extends Component {
  #dialog = /** @type {import("preact").RefObject<HTMLDialogElement>} */ (createRef());
  #input = /** @type {import("preact").RefObject<HTMLInputElement>} */ (createRef());

  #sync() {
    const dialog = this.#dialog.current;
    const { token } = this.props;
    if (dialog === null || dialog.open === (token !== "")) {
      return;
    }
    if (token === "") {
      dialog.close();
      if (this.#input.current !== null) {
        this.#input.current.value = "";
      }
    } else {
      dialog.showModal();
    }
  }

  /** @override */
  componentDidMount() {
    this.#sync();
  }

  /** @override */
  componentDidUpdate() {
    this.#sync();
  }

  /** @override */
  render() {
    const { token, shown, text, controller } = this.props;
    const why = token === "" ? "needed" : token;
    return html`<dialog
      data-role="token"
      lang=${shown}
      aria-labelledby="token-title"
      ref=${this.#dialog}
      onCancel=${(/** @type {Event} */ event) => {
        event.preventDefault();
        controller.leaveToken();
      }}
    >
      <form
        onSubmit=${(/** @type {Event} */ event) => {
          event.preventDefault();
          void controller.useToken(this.#input.current?.value ?? "");
        }}
      >
        <h2 id="token-title">${text("token.title")}</h2>
        <p id="token-why" class=${why === "refused" ? "refused" : ""} role="status">
          ${text(`token.${why}`)}
        </p>
        <label for="token-input">${text("token.label")}</label>
        <input
          id="token-input"
          name="token"
          type="password"
          autocomplete="off"
          autocapitalize="off"
          spellcheck=${false}
          maxlength="8192"
          required
          aria-describedby="token-why token-note"
          ref=${this.#input}
        />
        <p id="token-note" class="token-note">${text("token.note")}</p>
        <button type="submit" data-action="use-token" disabled=${why === "checking"}>
          ${text("token.use")}
        </button>
      </form>
    </dialog>`;
  }
}
