// @ts-check
/** The words of the API as people read them. Unknown words, of a newer server, are shown as they are. */

/** @typedef {"good" | "info" | "warn" | "bad" | "quiet"} Tone */
/** @typedef {{ label: string, tone: Tone, meaning: string }} Word */

/** @type {Readonly<Record<string, Word>>} */
export const HEALTHS = {
  ready: { label: "Ready", tone: "good", meaning: "It takes jobs." },
  degraded: { label: "Degraded", tone: "warn", meaning: "It runs, but wants no new jobs for now." },
  draining: {
    label: "Draining",
    tone: "info",
    meaning: "It finishes its jobs and takes no new ones.",
  },
  offline: { label: "Offline", tone: "bad", meaning: "Its connection has ended." },
  ejected: {
    label: "Ejected",
    tone: "bad",
    meaning: "It failed several times in a row and is skipped for a while.",
  },
};

/** @type {Readonly<Record<string, Word>>} */
export const JOB_STATES = {
  active: { label: "Active", tone: "info", meaning: "It waits for a node, or a node works on it." },
  retrying: {
    label: "Retrying",
    tone: "warn",
    meaning: "An attempt ended without a result; another follows.",
  },
  done: { label: "Done", tone: "good", meaning: "It has a result." },
  failed: { label: "Failed", tone: "bad", meaning: "It ended without a result." },
  cancelled: { label: "Cancelled", tone: "quiet", meaning: "Somebody cancelled it." },
};

/** @type {Readonly<Record<string, Word>>} */
export const INSTANCE_HEALTHS = {
  serving: { label: "Serving", tone: "good", meaning: "It announces itself and serves." },
  draining: { label: "Draining", tone: "info", meaning: "It shuts down." },
  down: {
    label: "Down",
    tone: "bad",
    meaning: "It has announced nothing for 15 s, although it did not sign off.",
  },
};

/** @type {Readonly<Record<string, Word>>} */
export const CELL_STATES = {
  new: { label: "New", tone: "info", meaning: "It gets nothing until an operator makes it ready." },
  ready: { label: "Ready", tone: "good", meaning: "It gets sessions, rooms and nodes." },
  draining: {
    label: "Draining",
    tone: "info",
    meaning: "It gets nothing new, and its nodes move to other cells.",
  },
  away: { label: "Away", tone: "bad", meaning: "Its Redis does not answer." },
};

/** @type {Readonly<Record<string, Word>>} */
export const SESSION_STATES = {
  connected: { label: "Connected", tone: "good", meaning: "A client is connected." },
  away: { label: "Away", tone: "quiet", meaning: "No client is connected; it may resume." },
};

/** Who may speak in a room. @type {Readonly<Record<string, Word>>} */
export const SPEAK_POLICIES = {
  invited: {
    label: "Invited speakers",
    tone: "quiet",
    meaning: "Only the host and holders of a speaker's token may speak.",
  },
  anyone: { label: "Anyone may speak", tone: "info", meaning: "Every member may speak." },
};

/** @type {Readonly<Record<string, Word>>} */
export const MEMBER_ROLES = {
  speaker: { label: "Speaker", tone: "info", meaning: "Speaks to the room." },
  listener: { label: "Listener", tone: "quiet", meaning: "Listens in one language." },
};

/** What a listener receives. @type {Readonly<Record<string, Word>>} */
export const LISTENING = {
  captions: { label: "Captions", tone: "quiet", meaning: "Texts." },
  speech: { label: "Speech", tone: "quiet", meaning: "Translated speech." },
  original_audio: { label: "Original", tone: "quiet", meaning: "The speaker's own audio." },
};

/** What remains of a session that has ended. */
export const OVER = {
  over: { label: "Over", tone: "quiet", meaning: "It has ended; its recent jobs are still known." },
};

/** @type {Readonly<Record<string, Word>>} */
export const RESULT_KINDS = {
  TRANSLATED: { label: "Translated", tone: "good", meaning: "The client has a translation." },
  HELD: {
    label: "Held",
    tone: "info",
    meaning: "The node keeps the audio of an unfinished sentence for the next utterance.",
  },
  NO_SPEECH: { label: "No speech", tone: "quiet", meaning: "Nobody spoke." },
};

/** @type {Readonly<Record<string, Word>>} */
export const CUTS = {
  IS_FINAL: { label: "App", tone: "quiet", meaning: "The app signalled the end." },
  TIMEOUT: { label: "Pause", tone: "quiet", meaning: "The speaker paused." },
  MAX_DURATION: {
    label: "Max duration",
    tone: "quiet",
    meaning: "It reached its longest duration while speech continued.",
  },
  MAX_LENGTH: {
    label: "Max length",
    tone: "quiet",
    meaning: "It reached its largest size while speech continued.",
  },
  SESSION_CLOSE: { label: "Session closed", tone: "quiet", meaning: "The session closed." },
  INTERRUPTED: {
    label: "Interrupted",
    tone: "quiet",
    meaning: "The other speaker began to speak.",
  },
};

/** @type {Readonly<Record<string, Word>>} */
export const STEPS = {
  GATHER: { label: "Gather", tone: "quiet", meaning: "From the first chunk to the cut." },
  HANGOVER: {
    label: "Hangover",
    tone: "quiet",
    meaning: "From the cut until late chunks may no longer join.",
  },
  SUBMIT: { label: "Submit", tone: "quiet", meaning: "From there until a dispatcher has the job." },
  QUEUE: { label: "Queue", tone: "warn", meaning: "Waiting for room, or for earlier jobs." },
  ALLOCATE: { label: "Allocate", tone: "info", meaning: "Asking the pool service for a node." },
  SEND: { label: "Send", tone: "info", meaning: "From the placement until the job was sent." },
  ACK: { label: "Acknowledge", tone: "info", meaning: "Until the node acknowledged it." },
  NODE: { label: "Node", tone: "good", meaning: "Until the node's result." },
  DELIVER: {
    label: "Deliver",
    tone: "quiet",
    meaning: "Until it was sent to the client, including the wait for earlier results.",
  },
  STAGE: { label: "Stage", tone: "good", meaning: "A part of the node's work, as it reports it." },
};

/** Sources of the console, for messages about what does not answer. */
export const SOURCES = /** @type {Readonly<Record<string, string>>} */ ({
  fleet: "Nodes",
  jobs: "Jobs",
  instances: "Instances",
  sessions: "Sessions",
  rooms: "Rooms",
  document: "This page",
});

/**
 * @param {Readonly<Record<string, Word>>} words
 * @param {string | undefined} key
 * @returns {Word}
 */
export function wordOf(words, key = "") {
  const found = Object.hasOwn(words, key) ? words[key] : undefined;
  return found ?? { label: key === "" ? "Unknown" : sentence(key), tone: "quiet", meaning: "" };
}

/** ALL_CANDIDATES_FULL as "All candidates full". @param {string} constant */
export function sentence(constant) {
  const text = constant.replaceAll("_", " ").toLowerCase();
  return text.charAt(0).toUpperCase() + text.slice(1);
}
