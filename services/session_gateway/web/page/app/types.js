// @ts-check
/**
 * The types of the page's state. It is plain data: actions go in, `reduce` gives the next state.
 *
 * @typedef {import("../../../../../sdk/js/src/index.js").SessionEvent} SessionEvent
 * @typedef {import("../../../../../sdk/js/src/index.js").ResultTimings} ResultTimings
 * @typedef {import("../../../../../sdk/js/src/index.js").OfferedDirection} OfferedDirection
 *
 * @typedef {"a" | "b"} Side
 * @typedef {"en" | "es" | "zh"} Interface
 * @typedef {{ a: string, b: string }} Languages Language codes; empty as long as none is known.
 * @typedef {"idle" | "connecting" | "connected" | "reconnecting" | "lost"} Connection
 * @typedef {"speaking" | "waiting" | "done" | "held" | "no-speech" | "missing"} UtteranceState
 *
 * @typedef {object} Utterance
 * @property {string} key unique on the page.
 * @property {number} session the number of its session on this page, from 1.
 * @property {number} take which press of a button it belongs to.
 * @property {number} index as the scheduler counts it; expected, until `known`. One that is missing
 *   and not known was not sent: its index is another one's.
 * @property {boolean} known whether the scheduler has mentioned it.
 * @property {Side} side who spoke.
 * @property {string} src language codes.
 * @property {string} tgt
 * @property {UtteranceState} state
 * @property {string} source
 * @property {string} translated
 * @property {boolean} joined for `held`: a later utterance contains it.
 * @property {string} reason for `missing`: why.
 * @property {boolean} hasSpeech whether it can be played (again).
 * @property {string} nodeId
 * @property {string} jobId
 * @property {number} attempts
 * @property {ResultTimings | null} timings
 *
 * @typedef {"preparing" | "recording" | "listening" | "hearing" | "paused"} TalkPhase preparing: the
 *   microphone is not ready; recording: a button is held; listening, hearing, paused: hands-free,
 *   nobody speaks, somebody speaks, speech is played.
 *
 * @typedef {object} Talk
 * @property {Side} side
 * @property {TalkPhase} phase
 *
 * @typedef {object} Problem what the user has to know or to do.
 * @property {string} reason for texts and tests.
 * @property {string} detail in English, from the program; for those who ask.
 *
 * @typedef {object} Offer
 * @property {"loading" | "known" | "failed"} status
 * @property {readonly OfferedDirection[]} directions
 *
 * @typedef {import("./store.js").Store<State, Action>} TalkStore
 *
 * What parts that other pages use, too, need of a page's store:
 *
 * @typedef {object} OfferStore
 * @property {(action: OfferAction) => void} dispatch
 *
 * @typedef {object} TokenStore
 * @property {{ readonly token: TokenState }} state
 * @property {(action: { type: "token", token: TokenState }) => void} dispatch
 *
 * @typedef {object} TalkingStore
 * @property {{ readonly talk: Talk | null, readonly problem: Problem | null }} state
 * @property {(action: TalkingAction) => void} dispatch
 *
 * @typedef {object} SpeechStore
 * @property {{ readonly playing: string }} state
 * @property {(action: SpeechAction) => void} dispatch
 *
 * @typedef {"" | "needed" | "refused" | "checking"} TokenState why the dialog is open, or "".
 *
 * @typedef {object} State
 * @property {Interface} interface
 * @property {Languages} languages
 * @property {Offer} offer
 * @property {boolean} handsFree
 * @property {boolean} turned whether the layout's own choice for the upper half is reversed.
 * @property {Connection} connection of the newest session.
 * @property {number} session the newest session's number; 0 before the first.
 * @property {Readonly<Record<number, string>>} sessionIds by number, once they are open.
 * @property {Talk | null} talk
 * @property {{ a: string, b: string }} hints keys of texts; empty for none.
 * @property {readonly Utterance[]} utterances the newest ones, oldest first.
 * @property {number} forgotten how many older ones are not shown any more.
 * @property {string} playing the key of the utterance whose speech is played, or "".
 * @property {Problem | null} problem
 * @property {TokenState} token
 *
 * @typedef {(
 *   | { type: "offer", directions: readonly OfferedDirection[] }
 *   | { type: "offer-failed" }
 * )} OfferAction
 *
 * @typedef {(
 *   | { type: "talk", talk: Talk | null }
 *   | { type: "hint", side: Side, hint: string }
 *   | { type: "problem", problem: Problem | null }
 *   | { type: "voice-start", session: number, take: number, side: Side, languages: Languages }
 *   | { type: "voice-end", session: number, take: number }
 *   | { type: "take-dropped", take: number }
 *   | { type: "take-failed", take: number, reason: string }
 *   | { type: "take-settled", take: number }
 * )} TalkingAction
 *
 * @typedef {(
 *   | { type: "playing", key: string }
 *   | { type: "speech", key: string, has: boolean }
 *   | { type: "problem", problem: Problem | null }
 * )} SpeechAction
 *
 * @typedef {(
 *   | OfferAction
 *   | TalkingAction
 *   | SpeechAction
 *   | { type: "choose", side: Side, language: string }
 *   | { type: "interface", interface: Interface }
 *   | { type: "hands-free", on: boolean }
 *   | { type: "turn" }
 *   | { type: "token", token: TokenState }
 *   | { type: "session-opening", session: number }
 *   | { type: "session-opened", session: number, id: string }
 *   | { type: "session-event", session: number, languages: Languages, event: SessionEvent }
 *   | { type: "session-closed", session: number }
 *   | { type: "session-lost", session: number, reason: string }
 * )} Action
 */

export {};
