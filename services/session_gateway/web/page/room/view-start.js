// @ts-check
/** Makes a room, or joins one by a link. */

import { Component, createRef, html } from "../app/html.js";
import { LanguageField, NameField, OfferNote } from "./view-fields.js";

/** @import { ViewProps } from "./view-page.js" */

/** @extends {Component<ViewProps, { isWrong: boolean }>} */
export class Start extends Component {
  /** @override */
  state = { isWrong: false };
  #name = /** @type {import("preact").RefObject<HTMLInputElement>} */ (createRef());
  #link = /** @type {import("preact").RefObject<HTMLInputElement>} */ (createRef());

  #onCreate = (/** @type {Event} */ event) => {
    event.preventDefault();
    void this.props.controller.create(this.#name.current?.value ?? "");
  };

  #onFollow = (/** @type {Event} */ event) => {
    event.preventDefault();
    const isLink = this.props.controller.follow(this.#link.current?.value ?? "");
    this.setState({ isWrong: !isLink });
  };

  /** @override */
  render() {
    const { state, text, controller } = this.props;
    const all = { state, text, controller };
    const { isWrong } = this.state;
    return html`<div class="start" data-view="start" lang=${state.interface}>
      <div class="intro">
        <h2>${text("start.heading")}</h2>
        <p>${text("start.intro")}</p>
      </div>
      <form class="card" data-role="make" onSubmit=${this.#onCreate}>
        <h3>${text("start.make")}</h3>
        <div class="field">
          <label for="room-name">${text("start.roomName")}</label>
          <input
            id="room-name"
            name="room"
            type="text"
            autocomplete="off"
            maxlength="100"
            placeholder=${text("start.roomNameHint")}
            ref=${this.#name}
          />
        </div>
        <${NameField} ...${all} />
        <div class="field">
          <label for="my-language">${text("me.speaks")}</label>
          <${LanguageField} ...${all} speaks=${true} id="my-language" />
        </div>
        <${OfferNote} ...${{ state, text }} />
        <button
          type="submit"
          class="main"
          data-action="create"
          disabled=${state.busy || state.language === ""}
        >
          ${text(state.busy ? "lobby.entering" : "start.create")}
        </button>
      </form>
      <form class="card" data-role="join" onSubmit=${this.#onFollow}>
        <h3>${text("start.join")}</h3>
        <div class="field">
          <label for="room-link">${text("start.link")}</label>
          <input
            id="room-link"
            name="link"
            type="text"
            inputmode="url"
            autocomplete="off"
            autocapitalize="off"
            spellcheck=${false}
            required
            aria-invalid=${isWrong}
            aria-describedby="room-link-note"
            ref=${this.#link}
          />
          <p id="room-link-note" class="hint bad" role="alert">
            ${isWrong ? text("start.noLink") : ""}
          </p>
        </div>
        <button type="submit" class="second" data-action="follow">${text("start.follow")}</button>
      </form>
      <p class="elsewhere"><a href="/">${text("start.talk")}</a></p>
    </div>`;
  }
}
