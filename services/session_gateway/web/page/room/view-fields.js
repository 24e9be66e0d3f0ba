// @ts-check
/** Fields of the page's forms. */

import { html } from "../app/html.js";
import { languageName } from "../app/texts.js";
import { choicesOf } from "./state.js";

/** @import { ViewProps } from "./view-page.js" */

/**
 * Chooses what the user speaks or listens to. One that is chosen is offered in any case.
 *
 * @param {ViewProps & { speaks: boolean, id: string }} props
 */
export function LanguageField({ state, text, controller, speaks, id }) {
  const { language } = state;
  const offered = choicesOf(state, speaks);
  const codes = language === "" || offered.includes(language) ? offered : [language, ...offered];
  return html`<select
    id=${id}
    class="language"
    data-role="language"
    value=${language}
    disabled=${codes.length === 0}
    onChange=${(/** @type {Event} */ event) => {
      const { value } = /** @type {HTMLSelectElement} */ (event.currentTarget);
      void controller.choose(value);
    }}
  >
    ${codes.length === 0 && html`<option value="">…</option>`}
    ${codes.map(
      (code) =>
        html`<option value=${code} selected=${code === language}>
          ${languageName(code)}${offered.includes(code) ? "" : ` · ${text("half.notOffered")}`}
        </option>`,
    )}
  </select>`;
}

/** @param {ViewProps} props */
export function NameField({ state, text, controller }) {
  return html`<div class="field">
    <label for="my-name">${text("me.name")}</label>
    <input
      id="my-name"
      name="name"
      type="text"
      autocomplete="name"
      maxlength="64"
      value=${state.name}
      aria-describedby="my-name-hint"
      onInput=${(/** @type {Event} */ event) => {
        controller.setName(/** @type {HTMLInputElement} */ (event.currentTarget).value);
      }}
    />
    <p id="my-name-hint" class="hint">${text("me.nameHint")}</p>
  </div>`;
}

/**
 * What the languages say about themselves, if none can be chosen.
 *
 * @param {Pick<ViewProps, "state" | "text">} props
 */
export function OfferNote({ state: { offer }, text }) {
  if (offer.directions.length > 0) {
    return null;
  }
  const key =
    offer.status === "loading"
      ? "half.loading"
      : offer.status === "failed"
        ? "half.offerFailed"
        : "half.noLanguages";
  return html`<p class="hint" role="status" data-role="offer">${text(key)}</p>`;
}
