// @ts-check
/**
 * The types of the page's state. It is plain data: actions go in, `reduce` gives the next state.
 *
 * @typedef {import("../../../../../sdk/js/src/index.js").RoomEvent} RoomEvent
 * @typedef {import("../../../../../sdk/js/src/index.js").RoomInfo} RoomInfo
 * @typedef {import("../../../../../sdk/js/src/index.js").RoomReceipt} RoomReceipt
 * @typedef {import("../../../../../sdk/js/src/index.js").Attendance} Attendance
 * @typedef {import("../../../../../sdk/js/src/index.js").Heard} Heard
 * @typedef {import("../../../../../sdk/js/src/index.js").SessionEvent} SessionEvent
 * @typedef {import("../app/types.js").Connection} Connection
 * @typedef {import("../app/types.js").Interface} Interface
 * @typedef {import("../app/types.js").Offer} Offer
 * @typedef {import("../app/types.js").OfferAction} OfferAction
 * @typedef {import("../app/types.js").OfferedDirection} OfferedDirection
 * @typedef {import("../app/types.js").Problem} Problem
 * @typedef {import("../app/types.js").SpeechAction} SpeechAction
 * @typedef {import("../app/types.js").Talk} Talk
 * @typedef {import("../app/types.js").TalkingAction} TalkingAction
 * @typedef {import("../app/types.js").TokenState} TokenState
 * @typedef {import("../app/store.js").Store<State, Action>} RoomStore
 *
 * @typedef {"host" | "speaker" | "listener"} Role what the token of this tab allows.
 *
 * @typedef {object} Invitation
 * @property {string} roomId
 * @property {string} token empty if the link had none.
 * @property {Role} role
 *
 * @typedef {object} Line an utterance, or several that are no longer kept.
 * @property {string} key unique on the page.
 * @property {number | null} index of the room; null for one that has none.
 * @property {"said" | "held" | "no-speech" | "missing"} state
 * @property {boolean} joined for `held`: a later line contains it.
 * @property {boolean} mine whether it was said here.
 * @property {string} speaker
 * @property {string} language of `text`.
 * @property {string} spoken the speaker's language.
 * @property {string} text
 * @property {string} source in the speaker's language, if it is another one.
 * @property {string} reason for `missing`: why.
 * @property {number} count for `missing`: how many utterances.
 * @property {boolean} replayed
 * @property {boolean} hasSpeech whether it can be played (again).
 *
 * @typedef {object} Links for others; empty until they are made.
 * @property {string} listener
 * @property {string} speaker
 *
 * @typedef {object} State
 * @property {Interface} interface
 * @property {"start" | "lobby" | "inside"} view
 * @property {Invitation | null} invitation
 * @property {string} refusal why the room cannot be entered, or "".
 * @property {Pick<RoomInfo, "name" | "allowedLanguages" | "speak"> | null} room
 * @property {boolean} speaks whether this tab speaks, or only listens.
 * @property {string} name of the user; may be empty.
 * @property {string} language what the user speaks or listens to.
 * @property {boolean} sound whether a listener hears speech.
 * @property {boolean} busy a room is being made or entered.
 * @property {Offer} offer
 * @property {boolean} handsFree
 * @property {Talk | null} talk
 * @property {{ a: string, b: string }} hints keys of texts; empty for none. `b` is not used.
 * @property {Connection} listening of the listener.
 * @property {Connection} speaking of the session; idle if there is none.
 * @property {string} sessionId of the speaker here, or "".
 * @property {Attendance | null} attendance
 * @property {readonly Line[]} lines the newest ones, in the order of the room.
 * @property {number} forgotten how many older ones are not shown any more.
 * @property {readonly number[]} pending what was said here and has no line yet, by the session's index.
 * @property {Readonly<Record<number, RoomReceipt>>} receipts of what was said here, by room index.
 * @property {string} playing the key of the line whose speech is played, or "".
 * @property {Problem | null} problem
 * @property {TokenState} token
 * @property {Links} links
 * @property {boolean} panel on small screens: whether the panel covers the captions.
 * @property {boolean} closing whether the user is asked before the room is closed.
 * @property {boolean} closed whether the room was closed.
 *
 * @typedef {(
 *   | OfferAction
 *   | TalkingAction
 *   | SpeechAction
 *   | { type: "interface", interface: Interface }
 *   | { type: "token", token: TokenState }
 *   | { type: "hands-free", on: boolean }
 *   | { type: "invited", invitation: Invitation | null }
 *   | { type: "described", room: RoomInfo }
 *   | { type: "refused", reason: string }
 *   | { type: "named", name: string }
 *   | { type: "choose", language: string }
 *   | { type: "sound", on: boolean }
 *   | { type: "busy", on: boolean }
 *   | { type: "entered", speaks: boolean }
 *   | { type: "links", links: Links }
 *   | { type: "panel", open: boolean }
 *   | { type: "closing", on: boolean }
 *   | { type: "listening", connection: Connection }
 *   | { type: "speaking", connection: Connection, sessionId: string }
 *   | { type: "room-event", event: RoomEvent }
 *   | { type: "session-event", event: SessionEvent }
 * )} Action
 */

export {};
