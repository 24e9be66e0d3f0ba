// @ts-check
/** One utterance in a half: its words, and on demand who translated it and how long that took. */

import { duration, timeline, waitedMs } from "./facts.js";
import { Component, html } from "./html.js";
import * as icons from "./icons.js";
import { reasonText } from "./texts.js";

/** @import { Controller } from "./controller.js" */
/** @import { Text, TextKey } from "./texts.js" */
/** @import { Connection, Side, Utterance } from "./types.js" */

/**
 * @typedef {object} SaidProps
 * @property {Side} side whose half it is.
 * @property {Utterance} utterance
 * @property {string} sessionId
 * @property {boolean} isPlaying
 * @property {Connection} connection
 * @property {Text} text
 * @property {string} language of the half's texts.
 * @property {Controller} controller
 */

/** @extends {Component<SaidProps, { isOpen: boolean }>} */
export class Said extends Component {
  /** @override */
  state = { isOpen: false };

  /**
   * @override
   * @param {SaidProps} next
   * @param {{ isOpen: boolean }} nextState
   */
  shouldComponentUpdate(next, nextState) {
    const { props, state } = this;
    const isPending = next.utterance.state === "speaking" || next.utterance.state === "waiting";
    return (
      next.utterance !== props.utterance ||
      next.isPlaying !== props.isPlaying ||
      next.language !== props.language ||
      next.sessionId !== props.sessionId ||
      (isPending && next.connection !== props.connection) ||
      nextState.isOpen !== state.isOpen
    );
  }

  /** @override */
  render() {
    const { side, utterance, sessionId, isPlaying, text, language, controller } = this.props;
    const { state, src, tgt, source, translated, hasSpeech } = utterance;
    const isMine = utterance.side === side;
    const words = [
      html`<p class=${isMine ? "big" : "small"} data-role="source" lang=${src} dir="auto">
        ${source}
      </p>`,
      html`<p class=${isMine ? "small" : "big"} data-role="translated" lang=${tgt} dir="auto">
        ${translated}
      </p>`,
    ];
    const status = statusOf(this.props);
    return html`<li
      class="said"
      data-index=${indexOf(utterance)}
      data-state=${state}
      data-session=${sessionId}
      data-speaker=${utterance.side}
    >
      ${isMine ? words : words.reverse()}
      ${status !== "" && html`<p class="status" data-role="status">${status}</p>`}
      <div class="said-tools">
        ${
          hasSpeech &&
          html`<button
            type="button"
            class="tool"
            data-action="replay"
            aria-label=${text(isPlaying ? "said.stop" : "said.replay")}
            title=${text(isPlaying ? "said.stop" : "said.replay")}
            onClick=${() => controller.replay(utterance)}
          >
            ${isPlaying ? icons.stop() : icons.speaker()}
          </button>`
        }
        ${
          !isPending(utterance) &&
          html`<details
            class="facts"
            data-role="facts"
            onToggle=${(/** @type {Event} */ event) => {
              const details = /** @type {HTMLDetailsElement} */ (event.currentTarget);
              this.setState({ isOpen: details.open }, () =>
                details.scrollIntoView({ block: "nearest" }),
              );
            }}
          >
            <summary class="tool">${text("said.facts")}</summary>
            ${this.state.isOpen && facts(utterance, text, language)}
          </details>`
        }
      </div>
    </li>`;
  }
}

/** @param {Utterance} utterance */
function isPending({ state }) {
  return state === "speaking" || state === "waiting";
}

/**
 * Its index; nothing if it was not sent.
 *
 * @param {Utterance} utterance
 */
function indexOf(utterance) {
  return utterance.known || isPending(utterance) ? utterance.index : undefined;
}

/** @param {SaidProps} props */
function statusOf({ side, utterance, connection, text }) {
  const { state, joined, reason, source, translated } = utterance;
  switch (state) {
    case "speaking":
      return text(utterance.side === side ? "said.speaking" : "hint.other");
    case "waiting":
      return waitingFor(utterance, connection, text);
    case "held":
      return text(joined ? "said.joined" : "said.held");
    case "no-speech":
      return text("said.noSpeech");
    case "missing":
      return text("said.missing", { why: reasonText(text, "missing", reason) });
    case "done":
      return source === "" && translated === "" ? text("said.empty") : "";
  }
}

/**
 * @param {Utterance} utterance
 * @param {Connection} connection
 * @param {Text} text
 */
function waitingFor({ known }, connection, text) {
  if (known) {
    return text("said.waiting");
  }
  return text(connection === "connected" ? "said.sending" : "said.kept");
}

/**
 * @param {Utterance} utterance
 * @param {Text} text
 * @param {string} language
 */
function facts({ nodeId, jobId, attempts, timings, reason }, text, language) {
  if (nodeId === "" && timings === null && reason === "") {
    return html`<p>${text("facts.none")}</p>`;
  }
  const parts = timings === null ? [] : timeline(timings);
  const all = parts.reduce((sum, part) => sum + part.ms, 0);
  return html`<div class="facts-body">
    <dl>
      ${nodeId !== "" && fact(text("facts.node"), nodeId)}
      ${attempts > 0 && fact(text("facts.attempts"), String(attempts))}
      ${timings !== null && fact(text("facts.waited"), duration(waitedMs(timings), language))}
      ${jobId !== "" && fact(text("facts.job"), jobId)}
      ${reason !== "" && fact(text("page.detail"), reason)}
    </dl>
    ${
      parts.length > 0 &&
      html`<div class="timeline" aria-hidden="true">
          ${parts.map(
            ({ name, ms }) =>
              html`<span class="part" data-part=${name} style=${{ flexGrow: ms / all }}></span>`,
          )}
        </div>
        <ul class="legend" aria-label=${text("facts.timeline")}>
          ${parts.map(
            ({ name, ms }) =>
              html`<li data-part=${name}>
                <span class="part-name">${text(/** @type {TextKey} */ (`time.${name}`))}</span>
                <span class="part-time">${duration(ms, language)}</span>
              </li>`,
          )}
        </ul>`
    }
  </div>`;
}

/**
 * @param {string} name
 * @param {string} value
 */
function fact(name, value) {
  return html`<div>
    <dt>${name}</dt>
    <dd dir="auto">${value.slice(0, 200)}</dd>
  </div>`;
}
