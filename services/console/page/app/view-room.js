// @ts-check
/** One room: who speaks, who listens in which language, and what waits. Nothing of what was said. */

import { html } from "./html.js";
import { count, plural } from "./format.js";
import { languageName } from "./languages.js";
import { address } from "./router.js";
import { Actions } from "./view-dialog.js";
import { Ago, Card, Empty, Facts, IdLink, Pill } from "./view-parts.js";
import { Lag, Languages } from "./view-rooms.js";
import { quiet } from "./view-sessions.js";
import { Pager, Table } from "./view-table.js";
import { LISTENING, MEMBER_ROLES, SPEAK_POLICIES, wordOf } from "./words.js";

/** @import { Children } from "./html.js" */
/** @import { RoomDetails, RoomDocument, RoomLanguage, RoomMember, RoomSpeaker } from "./types.js" */
/** @import { Column } from "./view-table.js" */

/** @type {readonly Column<RoomSpeaker>[]} */
const SPEAKER_COLUMNS = [
  { name: "Name", phone: "title", cell: (speaker) => named(speaker.name) },
  { name: "Language", phone: "side", cell: (speaker) => languageOf(speaker.language) },
  {
    name: "Session",
    cell: (speaker) => html`<${IdLink} to="session" id=${speaker.session} short />`,
  },
  { name: "Joined", cell: (speaker) => html`<${Ago} ms=${speaker.joined_ms} />` },
];

/** @type {readonly Column<RoomLanguage>[]} */
const LANGUAGE_COLUMNS = [
  { name: "Language", phone: "title", cell: (language) => languageOf(language.language) },
  { name: "Listeners", number: true, cell: (language) => count(language.listeners) },
  {
    name: "Want speech",
    number: true,
    cell: (language) => quiet(language.speech_listeners, ""),
  },
  { name: "Waiting", number: true, cell: (language) => quiet(language.waiting, "") },
  { name: "Lag", number: true, cell: (language) => html`<${Lag} of=${language} />` },
];

/** @type {readonly Column<RoomMember>[]} */
const MEMBER_COLUMNS = [
  { name: "Name", phone: "title", cell: (member) => named(member.name) },
  {
    name: "Role",
    phone: "side",
    cell: (member) => html`<${Pill} words=${MEMBER_ROLES} value=${member.role} />`,
  },
  { name: "Language", cell: (member) => languageOf(member.language) },
  {
    name: "Gets",
    cell: (member) =>
      member.gets.length === 0
        ? html`<span class="none">–</span>`
        : member.gets.map((each) => wordOf(LISTENING, each).label).join(", "),
  },
  { name: "Joined", cell: (member) => html`<${Ago} ms=${member.joined_ms} />` },
  {
    name: "Gateway",
    phone: "hide",
    cell: (member) =>
      html`<span class="id short" title=${member.gateway}>${member.gateway || "–"}</span>`,
  },
];

/** @param {string} name */
function named(name) {
  return name || html`<span class="none">no name</span>`;
}

/** @param {string} code */
function languageOf(code) {
  const name = languageName(code);
  return name === code
    ? html`<span>${code}</span>`
    : html`<span>${name} <span class="muted">${code}</span></span>`;
}

/** @param {{ document: RoomDocument }} props */
export function Room({ document }) {
  const { room, members } = document;
  const rows = members.order.flatMap((key) => members.rows[key] ?? []);
  return html`<div class="page-head">
      <div>
        <p class="crumbs"><a href=${address("rooms")}>Rooms</a></p>
        <h1 tabindex="-1" class="id">${room.id}</h1>
        <p class="subtitle">
          ${room.name && html`<span>${room.name}</span>`}
          <${Pill} words=${SPEAK_POLICIES} value=${room.speak} />
        </p>
      </div>
      <${Actions} actions=${[closeOf(room)]} />
    </div>
    <div class="columns">
      <${Card} title=${`Speakers (${count(room.speakers)})`} id="speakers">
        ${
          room.speaker_list.length === 0
            ? html`<${Empty} title="Nobody speaks now." />`
            : html`<${Table}
                label="Speakers"
                columns=${SPEAKER_COLUMNS}
                rows=${room.speaker_list}
                keyOf=${(/** @type {RoomSpeaker} */ speaker) => speaker.session}
                linkOf=${(/** @type {RoomSpeaker} */ speaker) => address("session", speaker.session)}
              />`
        }
      <//>
      <${Card} title="Room" id="facts"><${Facts} rows=${factsOf(room)} /><//>
    </div>
    <${Card} title=${`Languages (${count(room.language_list.length)})`} id="languages">
      ${
        room.language_list.length === 0
          ? html`<${Empty} title="Nobody listens now.">
              <p>What is said is not translated while nobody wants it.</p>
            <//>`
          : html`<${Table}
              label="Languages"
              columns=${LANGUAGE_COLUMNS}
              rows=${room.language_list}
              keyOf=${(/** @type {RoomLanguage} */ language) => language.language}
            />`
      }
    <//>
    <${Card} title="Members" id="members">
      ${
        rows.length === 0
          ? html`<${Empty} title="Nobody is there." />`
          : html`<${Table}
                label="Members"
                columns=${MEMBER_COLUMNS}
                rows=${rows}
                keyOf=${(/** @type {RoomMember} */ member) => member.key}
              />
              <${Pager} list=${members} what="members" />`
      }
      ${
        members.partial &&
        html`<p class="muted note">There are more members than the console reads.</p>`
      }
    <//>`;
}

/**
 * @param {RoomDetails} room
 * @returns {[string, Children][]}
 */
function factsOf(room) {
  return [
    ["Tenant", room.tenant || "–"],
    ["Created", html`<${Ago} ms=${room.created_ms} />`],
    ["Utterances", count(room.utterances)],
    ["Listeners", count(room.listeners)],
    ["Members, at most", count(room.max_members)],
    ["Speakers, at most", count(room.max_speakers)],
    ["Languages, at most", count(room.max_languages)],
    [
      "Allowed languages",
      room.allowed.length === 0 ? "any" : html`<${Languages} of=${room.allowed} />`,
    ],
    ["Gateways", html`<span class="id">${room.gateways.join(", ") || "–"}</span>`],
  ];
}

/**
 * @param {RoomDetails} room
 * @returns {import("./view-dialog.js").Action}
 */
function closeOf(room) {
  const speakers = plural(room.speakers, "speaker");
  const listeners = plural(room.listeners, "listener");
  return {
    name: "close",
    label: "Close room",
    title: "Close this room?",
    effects: [
      `It ends for ${speakers} and ${listeners}; they are told.`,
      "What has no translation yet is not translated any more.",
      "Nobody can join it again, and its tokens are of no use.",
    ],
    undo: "This cannot be undone.",
    target: `rooms/${encodeURIComponent(room.id)}/close`,
    done: "The room is closed.",
    danger: true,
  };
}
