// Generated from sdk/js/src/index.ts by `make js`. Do not edit.

// src/audio-format.ts
var PCM_SAMPLE_BYTES = 2;
var SPEECH_FORMAT = {
  encoding: "PCM_S16LE",
  sampleRateHz: 16e3,
  channels: 1
};
function frameBytes(format) {
  return PCM_SAMPLE_BYTES * format.channels;
}
function pcmDurationMs(format, bytes) {
  return bytes * 1e3 / (format.sampleRateHz * frameBytes(format));
}

// src/errors.ts
var ReasonedError = class extends Error {
  /**
   * @param reason for tools: an ErrorReason of the contract without its prefix, such as
   *   QUOTA_EXCEEDED, or a name that the subclass lists.
   * @param message one sentence for people.
   */
  constructor(reason, message, options) {
    super(`${reason}: ${message}`, options);
    this.reason = reason;
  }
  reason;
};
var SessionError = class extends ReasonedError {
  name = "SessionError";
};
var SessionRefusedError = class extends SessionError {
  /**
   * @param reason such as UNAUTHENTICATED or INVALID_MESSAGE; or BAD_ADDRESS: this runtime refuses
   *   to connect there, for example from an https page to a ws address.
   * @param fieldViolations for INVALID_MESSAGE: the invalid fields.
   */
  constructor(reason, message, fieldViolations = [], options) {
    super(reason, withFields(message, fieldViolations), options);
    this.fieldViolations = fieldViolations;
  }
  fieldViolations;
  name = "SessionRefusedError";
};
var SessionUnavailableError = class extends SessionError {
  /**
   * @param reason UNREACHABLE if no gateway answered; otherwise the last gateway's reason, such as
   *   SCHEDULER_DEPENDENCY_DOWN, or QUOTA_EXCEEDED if the tenant has reached its quota; or
   *   BROKEN_PROMISE: the servers violated the contract.
   * @param retryAfterMs milliseconds after which a retry may help; 0 if no server gave a time.
   */
  constructor(reason, message, retryAfterMs = 0, options) {
    super(reason, message, options);
    this.retryAfterMs = retryAfterMs;
  }
  retryAfterMs;
  name = "SessionUnavailableError";
};
var SessionLostError = class extends SessionError {
  name = "SessionLostError";
  unacknowledgedChunks;
  unacknowledgedBytes;
  resultsSeen;
  /**
   * @param reason an ErrorReason such as SESSION_NOT_FOUND or SESSION_TAKEN_OVER; or UNREACHABLE: no
   *   gateway answered in time; CLOSED: the server closed it first; BROKEN_PROMISE: the server
   *   violated the contract; ABORTED: this side left it; UNREAD: the app did not read its results.
   */
  constructor(reason, message, unfinished, options) {
    const { unacknowledgedChunks, unacknowledgedBytes, resultsSeen } = unfinished;
    super(
      reason,
      `${message} (${unacknowledgedChunks} chunks of audio were not acknowledged, ${resultsSeen} results had arrived)`,
      options
    );
    this.unacknowledgedChunks = unacknowledgedChunks;
    this.unacknowledgedBytes = unacknowledgedBytes;
    this.resultsSeen = resultsSeen;
  }
};
var RoomError = class extends ReasonedError {
  name = "RoomError";
};
var RoomRefusedError = class extends RoomError {
  /**
   * @param reason such as ROOM_NOT_FOUND, ROOM_CLOSED, ROOM_FULL, PERMISSION_DENIED; or BAD_ADDRESS.
   * @param fieldViolations for INVALID_MESSAGE: the invalid fields.
   */
  constructor(reason, message, fieldViolations = [], options) {
    super(reason, withFields(message, fieldViolations), options);
    this.fieldViolations = fieldViolations;
  }
  fieldViolations;
  name = "RoomRefusedError";
};
var RoomUnavailableError = class extends RoomError {
  /**
   * @param reason UNREACHABLE if no gateway answered; otherwise the last gateway's reason, such as
   *   SCHEDULER_DEPENDENCY_DOWN, or QUOTA_EXCEEDED if the tenant has reached its quota; or
   *   BROKEN_PROMISE: the servers violated the contract.
   * @param retryAfterMs milliseconds after which a retry may help; 0 if no server gave a time.
   */
  constructor(reason, message, retryAfterMs = 0, options) {
    super(reason, message, options);
    this.retryAfterMs = retryAfterMs;
  }
  retryAfterMs;
  name = "RoomUnavailableError";
};
var ListenerLostError = class extends RoomError {
  /**
   * @param reason an ErrorReason such as ROOM_NOT_FOUND or PERMISSION_DENIED; or UNREACHABLE,
   *   BROKEN_PROMISE, ABORTED or UNREAD, as in SessionLostError.
   * @param position the first room index that the listener has not seen.
   */
  constructor(reason, message, position, options) {
    super(reason, `${message} (seen are the utterances below ${position})`, options);
    this.position = position;
  }
  position;
  name = "ListenerLostError";
};
function withFields(message, fieldViolations) {
  const fields = fieldViolations.map((each) => `${each.field}: ${each.description}`);
  return [message, ...fields].join("; ");
}
var BufferFullError = class extends SessionError {
  constructor(waitingBytes, limitBytes) {
    super(
      "BUFFER_FULL",
      `${waitingBytes} bytes of audio wait to be sent, and ${limitBytes} are allowed: await send(), or record less until the connection is back`
    );
    this.waitingBytes = waitingBytes;
    this.limitBytes = limitBytes;
  }
  waitingBytes;
  limitBytes;
  name = "BufferFullError";
};
var MicrophoneError = class extends Error {
  constructor(reason, message, options) {
    super(message, options);
    this.reason = reason;
  }
  reason;
  name = "MicrophoneError";
};
var PlayerError = class extends Error {
  constructor(reason, message, options) {
    super(message, options);
    this.reason = reason;
  }
  reason;
  name = "PlayerError";
};

// src/protocol/json.ts
var WireError = class extends Error {
  name = "WireError";
};
function isFields(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
function fieldsOf(from, name) {
  const value = from[name];
  if (value === void 0 || value === null) {
    return {};
  }
  if (!isFields(value)) {
    throw new WireError(`${name} is not an object`);
  }
  return value;
}
function listOf(from, name) {
  const value = from[name];
  if (value === void 0 || value === null) {
    return [];
  }
  if (!Array.isArray(value)) {
    throw new WireError(`${name} is not an array`);
  }
  return value;
}
function messagesOf(from, name) {
  const list = listOf(from, name);
  if (!list.every(isFields)) {
    throw new WireError(`${name} is not an array of objects`);
  }
  return list;
}
function textOf(from, name) {
  const value = from[name];
  if (value === void 0 || value === null) {
    return "";
  }
  if (typeof value !== "string") {
    throw new WireError(`${name} is not a string`);
  }
  return value;
}
function textListOf(from, name) {
  const list = listOf(from, name);
  if (!list.every((each) => typeof each === "string")) {
    throw new WireError(`${name} is not an array of strings`);
  }
  return list;
}
function textsByName(from, name) {
  const entries = Object.entries(fieldsOf(from, name));
  if (!entries.every((entry) => typeof entry[1] === "string")) {
    throw new WireError(`${name} has a value that is not a string`);
  }
  return Object.fromEntries(entries);
}
function integer(value, name) {
  const number = typeof value === "string" && /^\d{1,16}$/.test(value) ? Number(value) : value;
  if (typeof number !== "number" || !Number.isSafeInteger(number) || number < 0) {
    throw new WireError(`${name} is not an integer from 0 to 2^53`);
  }
  return number;
}
function integerOf(from, name) {
  return optionalInteger(from, name) ?? 0;
}
function optionalInteger(from, name) {
  const value = from[name];
  return value === void 0 || value === null ? null : integer(value, name);
}
function integersOf(from, name) {
  return listOf(from, name).map((each) => integer(each, name));
}
function enumOf(from, name, prefix) {
  const value = from[name];
  if (typeof value === "number") {
    return `UNKNOWN_${value}`;
  }
  const text = textOf(from, name);
  if (text === "") {
    return "UNSPECIFIED";
  }
  return text.startsWith(prefix) ? text.slice(prefix.length) : text;
}

// src/session/addresses.ts
var PATH = "/v1/converse";
var SCHEMES = {
  "ws:": "ws:",
  "wss:": "wss:",
  "http:": "ws:",
  "https:": "wss:"
};
function parseAddresses(addresses) {
  const listed = typeof addresses === "string" ? [addresses] : addresses;
  if (listed.length === 0) {
    throw new RangeError("addresses: must name at least one gateway, such as wss://example.org");
  }
  return listed.map(parseAddress);
}
function parseAddress(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    throw new RangeError(`addresses: ${JSON.stringify(address)} must be like wss://example.org`);
  }
  const scheme = SCHEMES[url.protocol];
  if (scheme === void 0) {
    throw new RangeError(`addresses: ${url.protocol} must be wss:, ws:, https: or http:`);
  }
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
    throw new RangeError("addresses: must have no user, password, query or fragment");
  }
  return `${scheme}//${url.host}${url.pathname === "/" ? PATH : url.pathname}`;
}
function parseOrigins(url) {
  return parseAddresses(url).map((address) => {
    const { pathname, origin } = new URL(httpAddress(address));
    if (pathname !== PATH) {
      throw new RangeError(`url: must have no path, and has ${pathname}`);
    }
    return origin;
  });
}
function httpAddress(address) {
  return address.replace(/^ws/, "http");
}

// src/protocol/endings.ts
function serverError(reason, message, retryAfterMs = 0) {
  return { reason, message, retryAfterMs, fieldViolations: [], metadata: {} };
}
function refused(error, final = false) {
  return { kind: "refused", error, final };
}
function lost(why, silent = false) {
  return silent ? { kind: "lost", why, silent } : { kind: "lost", why };
}
function inWords(ending) {
  switch (ending.kind) {
    case "refused":
      return `${ending.error.reason}: ${ending.error.message}`;
    case "left":
      return "";
    case "lost":
    case "moved":
    case "expired":
      return ending.why;
  }
}
var GOING_AWAY = 1001;
var QUOTA = 4429;
var MEANINGS = /* @__PURE__ */ new Map([
  [4400, { reason: "INVALID_MESSAGE", final: true, message: "the gateway refused a message" }],
  [4401, { reason: "UNAUTHENTICATED", final: false, message: "the token is missing or expired" }],
  [4403, { reason: "PERMISSION_DENIED", final: true, message: "the token does not permit this" }],
  [4404, { reason: "SESSION_NOT_FOUND", final: true, message: "the gateway has no such session" }],
  [4409, { reason: "SESSION_TAKEN_OVER", final: true, message: "another client has resumed it" }],
  [4413, { reason: "INVALID_MESSAGE", final: true, message: "a message was too large" }],
  [QUOTA, { reason: "QUOTA_EXCEEDED", final: false, message: "too much at once" }]
]);
var PASSING = /* @__PURE__ */ new Set(["BAD_AUDIO", "QUOTA_EXCEEDED"]);
function endingOfClose(code, said, last) {
  const meaning = MEANINGS.get(code);
  if (meaning !== void 0) {
    const error = last ?? serverError(meaning.reason, said || meaning.message);
    return refused(error, meaning.final);
  }
  if (code === GOING_AWAY) {
    return { kind: "moved", afterMs: 0, why: said || "the gateway is going away" };
  }
  if (last !== null && !PASSING.has(last.reason)) {
    return refused(last);
  }
  return lost(`the connection ended with code ${code}${said ? `: ${said}` : ""}`);
}

// src/protocol/wire-parts.ts
function messageEvents(frame) {
  let message;
  try {
    message = JSON.parse(frame);
  } catch {
    throw new WireError("a text frame is not JSON");
  }
  if (!isFields(message)) {
    throw new WireError("a text frame is not an object");
  }
  return messagesOf(message, "events");
}
function readFirst(event, readers) {
  const found = Object.entries(readers).find(([name]) => event[name] !== void 0);
  return found === void 0 ? null : found[1](fieldsOf(event, found[0]));
}
function goAwayFrom(event) {
  return { kind: "goAway", afterMs: integerOf(event, "afterMs"), why: textOf(event, "why") };
}
function errorFrom(error) {
  return {
    reason: enumOf(error, "reason", "ERROR_REASON_"),
    message: textOf(error, "message"),
    retryAfterMs: integerOf(error, "retryAfterMs"),
    fieldViolations: messagesOf(error, "fieldViolations").map((each) => ({
      field: textOf(each, "field"),
      description: textOf(each, "description")
    })),
    metadata: textsByName(error, "metadata")
  };
}
function problemFrom(error) {
  return { type: "problem", ...error };
}
function textsOf(event) {
  const texts = fieldsOf(event, "texts");
  return {
    source: textOf(texts, "source"),
    repaired: textOf(texts, "repaired"),
    translated: textOf(texts, "translated")
  };
}
function kindOf(result) {
  const kind = enumOf(result, "kind", "KIND_");
  return kind === "TRANSLATED" || kind === "HELD" || kind === "NO_SPEECH" ? kind : "UNSPECIFIED";
}
function formatOf(result, name) {
  const format = fieldsOf(result, name);
  const encoding = enumOf(format, "encoding", "AUDIO_ENCODING_");
  const sampleRateHz = integerOf(format, "sampleRateHz");
  const channels = integerOf(format, "channels");
  const isKnown = encoding === "PCM_S16LE" || encoding === "OPUS";
  return isKnown && sampleRateHz > 0 && channels > 0 ? { encoding, sampleRateHz, channels } : null;
}

// src/session/socket.ts
var PROTOCOL = "lingua.v1";
var OPEN = 1;
var NORMAL = 1e3;
var ABNORMAL = 1006;
var CLOSE_FOLLOWS_MS = 100;
var EXPLAIN_MS = 3e3;
var HTTP_WOULD_ACCEPT = 426;
var Socket = class {
  #socket;
  #closeTimer;
  constructor(socket, listener) {
    this.#socket = socket;
    socket.onmessage = (event) => {
      if (typeof event.data === "string") {
        listener.onText(event.data);
      } else if (event.data instanceof ArrayBuffer) {
        listener.onBinary(event.data);
      }
    };
    socket.onclose = (event) => {
      clearTimeout(this.#closeTimer);
      listener.onClosed(event.code, event.reason);
    };
    socket.onerror = () => {
      this.#closeTimer ??= setTimeout(() => {
        listener.onClosed(ABNORMAL, "");
      }, CLOSE_FOLLOWS_MS);
    };
  }
  /** Bytes that were sent, and that the network has not taken yet. */
  get waiting() {
    return this.#socket.bufferedAmount;
  }
  /** Does nothing if the connection is about to end: then the next one sends everything again. */
  send(frame) {
    if (this.#socket.readyState === OPEN) {
      this.#socket.send(frame);
    }
  }
  /** Says that nothing more will be sent. The listener is told when the other side agrees. */
  close() {
    this.#socket.close(NORMAL);
  }
  /** Leaves the connection at once. The listener is not called any more. */
  abandon() {
    clearTimeout(this.#closeTimer);
    leave(this.#socket);
  }
};
async function dial(dialling) {
  let socket;
  const offered = dialling.token === "" ? [PROTOCOL] : [PROTOCOL, `bearer.${dialling.token}`];
  try {
    socket = new dialling.constructor(dialling.address, offered);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return refused(
      serverError("BAD_ADDRESS", `cannot connect to ${dialling.address}: ${why}`),
      true
    );
  }
  socket.binaryType = "arraybuffer";
  const outcome = await opening(socket, dialling);
  if (outcome === "open") {
    if (socket.protocol === PROTOCOL) {
      return socket;
    }
    leave(socket);
    return lost(`the server at ${dialling.address} does not speak ${PROTOCOL}`);
  }
  leave(socket);
  return outcome === "late" ? lost(`no connection to ${dialling.address} in time`, true) : await explain(dialling);
}
function opening(socket, { withinMs, signal }) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      finish("late");
    }, withinMs);
    const finish = (outcome) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      resolve(outcome);
    };
    const onAbort = () => {
      finish("late");
    };
    signal.addEventListener("abort", onAbort);
    socket.onopen = () => {
      finish("open");
    };
    socket.onclose = () => {
      finish("failed");
    };
    socket.onerror = () => {
      finish("failed");
    };
    if (signal.aborted) {
      finish("late");
    }
  });
}
function leave(socket) {
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.onerror = () => void 0;
  socket.close(NORMAL);
  socket.terminate?.();
}
async function explain({ address, token, signal }) {
  const unreachable = lost(`cannot connect to ${address}`);
  const headers = token === "" ? {} : { Authorization: `Bearer ${token}` };
  const limit2 = new AbortController();
  const stop = () => {
    limit2.abort();
  };
  const timer = setTimeout(stop, EXPLAIN_MS);
  signal.addEventListener("abort", stop);
  try {
    const response = await fetch(httpAddress(address), {
      headers,
      signal: limit2.signal,
      cache: "no-store",
      redirect: "error"
    });
    const body = await response.text();
    return response.status === HTTP_WOULD_ACCEPT ? unreachable : refusalOf(response.status, body);
  } catch {
    return unreachable;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}
function refusalOf(status, body) {
  try {
    const error = JSON.parse(body);
    if (isFields(error) && typeof error.reason === "string" && error.reason !== "") {
      return refused(errorFrom(error));
    }
  } catch {
  }
  return lost(`the server answered with HTTP status ${status}`);
}

// src/session/http.ts
var TOO_MANY_REQUESTS = 429;
async function request(url, options, read) {
  const { token = "", body, signal } = options;
  try {
    const response = await fetch(url, {
      cache: "no-store",
      headers: {
        ...token === "" ? {} : { Authorization: `Bearer ${token}` },
        ...body === void 0 ? {} : { "Content-Type": "application/json" }
      },
      ...body === void 0 ? {} : { method: "POST", body: JSON.stringify(body) },
      ...signal === void 0 ? {} : { signal }
    });
    if (response.ok) {
      const answer = await response.json();
      return { kind: "answered", value: read(fieldsOf({ answer }, "answer")) };
    }
    const ending = refusalOf(response.status, await response.text());
    if (ending.kind !== "refused") {
      throw new Error(`HTTP status ${response.status}`);
    }
    const kind = response.status < TOO_MANY_REQUESTS ? "refused" : "unavailable";
    return { kind, error: ending.error };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    return { kind: "unreachable", message: `${url.href} does not answer: ${why}`, cause };
  }
}

// src/languages.ts
async function offeredDirections(address, options = {}) {
  const [webSocketAddress = ""] = parseAddresses(address);
  const url = new URL("/v1/languages", httpAddress(webSocketAddress));
  const answer = await request(url, options, offerFrom);
  switch (answer.kind) {
    case "answered":
      return answer.value;
    case "refused":
      throw new SessionRefusedError(answer.error.reason, answer.error.message);
    case "unavailable": {
      const { reason, message, retryAfterMs } = answer.error;
      throw new SessionUnavailableError(reason, message, retryAfterMs);
    }
    case "unreachable": {
      const { message, cause } = answer;
      throw new SessionUnavailableError("UNREACHABLE", message, 0, { cause });
    }
  }
}
function offerFrom(fields) {
  return {
    directions: messagesOf(fields, "directions").map((each) => ({
      src: textOf(each, "src"),
      tgt: textOf(each, "tgt"),
      speech: each.speech === true,
      room: each.room === true
    })),
    asOfMs: integerOf(fields, "asOfMs")
  };
}

// src/protocol/frames.ts
var AUDIO = 1;
var SPEECH = 2;
var AUDIO_HEADER_BYTES = 20;
var SPEECH_HEADER_BYTES = 8;
var FLAG_FINAL = 1;
var SPEAKER_SHIFT = 1;
var SPEAKERS = { none: 0, a: 1, b: 2 };
function audioFrame(chunk) {
  const frame = new Uint8Array(AUDIO_HEADER_BYTES + chunk.data.length);
  const view = new DataView(frame.buffer);
  view.setUint8(0, AUDIO);
  const flags = (chunk.isFinal ? FLAG_FINAL : 0) | SPEAKERS[chunk.speaker] << SPEAKER_SHIFT;
  view.setUint8(1, flags);
  view.setBigUint64(4, BigInt(chunk.seq));
  view.setBigUint64(12, BigInt(chunk.clientMs));
  frame.set(chunk.data, AUDIO_HEADER_BYTES);
  return frame;
}
function speechOf(frame) {
  if (frame.byteLength < SPEECH_HEADER_BYTES) {
    return null;
  }
  const view = new DataView(frame);
  if (view.getUint32(0) !== SPEECH << 24) {
    return null;
  }
  return { index: view.getUint32(4), data: new Uint8Array(frame, SPEECH_HEADER_BYTES) };
}

// src/protocol/connection.ts
var Connection = class {
  /**
   * @param resumes whether it resumes something; otherwise it asks for something new.
   * @param openedBy when the gateway must have answered.
   */
  constructor(resumes, openedBy) {
    this.resumes = resumes;
    this.openedBy = openedBy;
  }
  resumes;
  openedBy;
  /** Whether the gateway has answered the first message. */
  opened = false;
  /** Whether the connection is being ended. Events that still arrive are ignored. */
  closing = false;
  /** Whether the first message was written. */
  openTaken = false;
  /** When the gateway wants the client to have left, and why. */
  leaveAt = null;
  leaveWhy = "";
  /** The gateway's last event, if that was an error. */
  lastError = null;
  /** Tracks the gateway's silence; null if the gateway does not promise to answer. */
  silence = null;
  /** Whether to send an empty message, which the gateway has to answer. */
  askDue = false;
  /** Returns when something is due on this connection; null if nothing is. */
  nextDeadline() {
    if (this.closing) {
      return null;
    }
    return earliest(this.opened ? null : this.openedBy, this.leaveAt, this.silence?.due ?? null);
  }
  /** Returns why the connection has to end now; null if it goes on. */
  onTimer(now2, patience) {
    if (this.leaveAt !== null && this.leaveAt <= now2) {
      return { kind: "moved", afterMs: 0, why: this.leaveWhy };
    }
    if (!this.opened && this.openedBy <= now2) {
      return lost("the gateway did not answer in time", true);
    }
    const { silence } = this;
    if (silence === null || silence.due > now2) {
      return null;
    }
    const verdict = silence.beat(now2);
    this.askDue ||= verdict === "ask";
    if (verdict !== "silent") {
      return null;
    }
    patience.ranOut(now2);
    return lost(`the gateway sent nothing for ${silence.silenceMs} ms`, true);
  }
  /** Returns why the connection ended: with this code and text, after the gateway's events. */
  ending(now2, code, said) {
    const ending = endingOfClose(code, said, this.lastError);
    if (this.leaveAt !== null && (ending.kind === "lost" || ending.kind === "moved")) {
      return { kind: "moved", afterMs: Math.max(0, this.leaveAt - now2), why: this.leaveWhy };
    }
    return ending;
  }
};
function earliest(...times) {
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.min(...known);
}

// src/protocol/retry.ts
var FIRST_MS = 100;
var LONGEST_MS = 5e3;
var ANSWER_MS = 1e4;
var LAST_ANSWER_MS = 1e3;
var OPEN_MS = 1e4;
var RESUME_MS = 3e4;
var STABLE_MS = 1e3;
var LONGEST_WAIT_MS = 3e4;
var Backoff = class {
  constructor(random) {
    this.random = random;
  }
  random;
  #limit = FIRST_MS;
  next() {
    const wait = this.random() * this.#limit;
    this.#limit = Math.min(LONGEST_MS, this.#limit * 2);
    return wait;
  }
  reset() {
    this.#limit = FIRST_MS;
  }
};
var Retries = class {
  /** @param limitMs how long to try; null: OPEN_MS at first, later as long as the server allows. */
  constructor(random, limitMs) {
    this.limitMs = limitMs;
    this.#backoff = new Backoff(random);
  }
  limitMs;
  #backoff;
  #allowedMs = OPEN_MS;
  /** Since when there is no connection; null while there is one. */
  #awaySince = null;
  /** Since when there was no good connection; null if the last one was good. */
  #troubleSince = null;
  #openedAt = null;
  #wasGood = false;
  /** Notes that there is no connection. Only the first call after `opened` counts. */
  away(now2) {
    if (this.#awaySince !== null) {
      return;
    }
    this.#awaySince = now2;
    if (this.#openedAt !== null && now2 - this.#openedAt >= STABLE_MS) {
      this.progress();
    }
    if (this.#wasGood) {
      this.#backoff.reset();
      this.#troubleSince = null;
    }
    this.#troubleSince ??= now2;
  }
  /** Notes that the session is open. Returns for how many milliseconds it was not. */
  opened(now2, resumeWithinMs) {
    const awayMs = this.#awaySince === null ? 0 : now2 - this.#awaySince;
    this.#awaySince = null;
    this.#openedAt = now2;
    this.#wasGood = false;
    this.#allowedMs = resumeWithinMs || RESUME_MS;
    return awayMs;
  }
  /** Notes that the current connection has brought the session forward. */
  progress() {
    this.#wasGood = true;
  }
  /** How long to try. */
  get withinMs() {
    return this.limitMs ?? this.#allowedMs;
  }
  get #giveUpAt() {
    return this.#troubleSince === null ? null : this.#troubleSince + this.withinMs;
  }
  /** Returns the deadline for the answer of a gateway that is asked now. */
  answerBy(now2) {
    const latest = now2 + ANSWER_MS;
    const giveUpAt = this.#giveUpAt;
    return giveUpAt === null ? latest : Math.min(latest, Math.max(giveUpAt, now2 + LAST_ANSWER_MS));
  }
  /** Returns the milliseconds until the next attempt; null if it is time to give up. */
  nextWait(now2, { askedMs = 0, moved = false, strictly = false } = {}) {
    const backoff = moved && this.#wasGood ? 0 : this.#backoff.next();
    this.#wasGood = false;
    const wait = Math.max(Math.min(askedMs, LONGEST_WAIT_MS), backoff);
    const giveUpAt = this.#giveUpAt;
    if (giveUpAt === null) {
      return wait;
    }
    if (now2 >= giveUpAt || strictly && now2 + askedMs > giveUpAt) {
      return null;
    }
    return Math.min(wait, giveUpAt - now2);
  }
};

// src/protocol/reconnection.ts
var MAX_FAULTS = 5;
var LATE_RESUME_MS = 6e4;
var FATAL = /* @__PURE__ */ new Set([
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "SESSION_NOT_FOUND",
  "ROOM_NOT_FOUND",
  "ROOM_CLOSED",
  "BAD_ADDRESS",
  // Only in HTTP refusals.
  "WRONG_ORIGIN",
  "WRONG_HOST",
  "NOT_FOUND"
]);
var Reconnection = class {
  /** @param reconnectMs how long to try before giving up; null: as long as the server allows. */
  constructor(subject, random, reconnectMs) {
    this.subject = subject;
    this.#retries = new Retries(random, reconnectMs);
  }
  subject;
  #retries;
  #faults = 0;
  /** The last refusal of a first message since one was last answered. */
  #refusal = null;
  #lateResumeUntil = 0;
  /** A connection is about to be opened. Returns when the gateway must have answered. */
  connecting(now2) {
    this.#retries.away(now2);
    return this.#retries.answerBy(now2);
  }
  /** The session is open. Returns for how many milliseconds it was not. */
  opened(now2, resumeWithinMs) {
    this.#refusal = null;
    return this.#retries.opened(now2, resumeWithinMs);
  }
  /** The current connection has brought the session forward. */
  progress() {
    this.#faults = 0;
    this.#retries.progress();
  }
  /** The server broke the contract. */
  fault() {
    this.#faults += 1;
  }
  /** The connection has ended, or could not be opened. */
  next(now2, ending, reached) {
    this.#retries.away(now2);
    if (!reached.opened && reached.askedToResume && ending.kind === "lost") {
      this.#lateResumeUntil = now2 + LATE_RESUME_MS;
    }
    if (ending.kind === "refused") {
      return this.#afterRefusal(now2, reached, ending.error, ending.final);
    }
    return this.#retry(now2, ending, ending.kind === "moved" ? ending.afterMs : 0);
  }
  #afterRefusal(now2, reached, error, final) {
    const { reason, message } = error;
    if (this.subject.isDoneBy(reason)) {
      return { do: "over" };
    }
    if (this.#isFinal(now2, reached, error, final)) {
      const { isKnown } = this.subject;
      const why = isKnown ? this.subject.lost(reason, message) : this.subject.refused(error);
      return { do: "fail", error: why };
    }
    if (reached.opened && reason === "INVALID_MESSAGE") {
      this.#faults += 1;
    }
    if (!reached.opened && reason !== "DRAINING") {
      this.#refusal = error;
    }
    return this.#retry(now2, refused(error), error.retryAfterMs);
  }
  /** Whether a retry cannot help. */
  #isFinal(now2, reached, { reason }, final) {
    if (reason === "SESSION_TAKEN_OVER") {
      const wasUs = now2 < this.#lateResumeUntil;
      this.#lateResumeUntil = 0;
      return !wasUs;
    }
    if (reason === "ROOM_FULL") {
      return !this.subject.isKnown;
    }
    return final || FATAL.has(reason) || !reached.opened && reason === "INVALID_MESSAGE";
  }
  #retry(now2, ending, askedMs) {
    if (this.#faults >= MAX_FAULTS) {
      const what = `${MAX_FAULTS} connections in a row failed: ${inWords(ending)}`;
      return this.#fail("BROKEN_PROMISE", what, 0);
    }
    const strictly = ending.kind === "refused" && ending.error.reason === "QUOTA_EXCEEDED";
    const moved = ending.kind === "moved";
    const wait = this.#retries.nextWait(now2, { askedMs, moved, strictly });
    return wait === null ? this.#giveUp(ending, askedMs) : { do: "retry", afterMs: wait };
  }
  #giveUp(ending, askedMs) {
    const said = ending.kind === "refused" ? ending.error : this.#refusal;
    const reason = said?.reason ?? "UNREACHABLE";
    const within = `${this.#retries.withinMs / 1e3} s`;
    const what = `no gateway accepted it within ${within}; last: ${inWords(ending)}`;
    return this.#fail(reason, what, askedMs);
  }
  #fail(reason, what, retryAfterMs) {
    const error = this.subject.isKnown ? this.subject.lost(reason, what) : this.subject.unavailable(reason, what, retryAfterMs);
    return { do: "fail", error };
  }
};

// src/protocol/silence.ts
var SILENT_BEATS = 6;
var ANSWER_BEATS = 3;
var ASK_BEATS = 3;
var LEAST_MS = 300;
var MOST_MS = 6e5;
var MOST_TIMES = 8;
var FORGET_MS = 3e5;
var Silence = class {
  constructor(now2, silenceMs) {
    this.silenceMs = silenceMs;
    this.#beatMs = silenceMs / SILENT_BEATS;
    this.due = now2 + this.#beatMs;
  }
  silenceMs;
  /** Set this whenever the gateway has sent something. */
  heard = false;
  /** When to call `beat` next. */
  due;
  #beatMs;
  #quiet = 0;
  /** Beats since it was asked; null if it was not asked since its last message. */
  #unanswered = null;
  /** Handles a beat, which must be due. "ask": ask the gateway now; this counts as asked. */
  beat(now2) {
    const late = now2 - this.due;
    this.due = now2 + this.#beatMs;
    if (this.heard) {
      this.heard = false;
      this.#quiet = 0;
      this.#unanswered = null;
      return "wait";
    }
    if (late > this.#beatMs) {
      return "wait";
    }
    this.#quiet += 1;
    if (this.#unanswered === null) {
      if (this.#quiet < ASK_BEATS) {
        return "wait";
      }
      this.#unanswered = 0;
      return "ask";
    }
    this.#unanswered += 1;
    const isFrozen = this.#quiet >= SILENT_BEATS && this.#unanswered >= ANSWER_BEATS;
    return isFrozen ? "silent" : "wait";
  }
};
var Patience = class {
  #times = 1;
  #lostAt = 0;
  /** Returns how long a gateway that announced `saidMs` may be silent; 0: forever. */
  silenceMs(now2, saidMs) {
    if (saidMs === 0) {
      return 0;
    }
    if (now2 - this.#lostAt > FORGET_MS) {
      this.#times = 1;
    }
    return Math.min(MOST_MS, Math.max(LEAST_MS, saidMs)) * this.#times;
  }
  /** A gateway was left because it was silent. */
  ranOut(now2) {
    this.#times = Math.min(MOST_TIMES, 2 * this.#times);
    this.#lostAt = now2;
  }
};

// src/protocol/connections.ts
var BEFORE_OPENED = /* @__PURE__ */ new Set(["opened", "joined", "error", "goAway"]);
var Connections = class {
  #subject;
  #reconnection;
  #patience = new Patience();
  #current = null;
  #effects = [];
  constructor({ subject, random, reconnectMs }) {
    this.#subject = subject;
    this.#reconnection = new Reconnection(subject, random, reconnectMs);
  }
  /** Whether the gateway has answered the first message of the current connection. */
  get opened() {
    return this.#current?.opened ?? false;
  }
  /** The current connection, unless it is being ended. */
  get live() {
    return this.#current?.closing === true ? null : this.#current;
  }
  /** Returns why the connection ended, by its close code and the gateway's events. */
  ending(now2, code, said) {
    return this.#current?.ending(now2, code, said) ?? lost("the connection ended");
  }
  // ---- the connection ----
  /** A connection is about to be opened. Returns the deadline for that. */
  onConnecting(now2) {
    return this.#reconnection.connecting(now2);
  }
  /** A new connection is open. */
  onConnected(now2) {
    this.#current = new Connection(this.#subject.isKnown, this.onConnecting(now2));
    return this.#current;
  }
  /**
   * Handles the events of a text frame, as long as the connection is kept.
   *
   * @param parse returns the events of a frame, or throws if it is malformed.
   */
  onText(frame, parse, handle) {
    this.hear();
    for (const event of this.#read(frame, parse)) {
      const connection = this.live;
      if (connection === null) {
        break;
      }
      if (connection.opened || BEFORE_OPENED.has(event.kind)) {
        connection.lastError = null;
        handle(connection, event);
      }
    }
  }
  /** Returns the events of a frame. Ends the connection if the frame is malformed. */
  #read(frame, parse) {
    if (this.live === null) {
      return [];
    }
    try {
      return parse(frame);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.fault("INVALID_MESSAGE", `sent a malformed message: ${why}`);
      return [];
    }
  }
  /** The gateway has sent something. */
  hear() {
    if (this.#current?.silence != null) {
      this.#current.silence.heard = true;
    }
  }
  /** The gateway has answered the first message. Returns for how long there was no connection. */
  onOpened(now2, { silenceMs, resumeWithinMs }) {
    if (this.#current !== null) {
      const limitMs = this.#patience.silenceMs(now2, silenceMs);
      this.#current.opened = true;
      this.#current.silence = limitMs > 0 ? new Silence(now2, limitMs) : null;
    }
    return this.#reconnection.opened(now2, resumeWithinMs);
  }
  /** The gateway wants the client to connect elsewhere. */
  onGoAway(now2, { afterMs, why }) {
    if (this.#current !== null) {
      this.#current.leaveAt = now2 + afterMs;
      this.#current.leaveWhy = why;
    }
  }
  /** The current connection has brought things forward. */
  progress() {
    this.#reconnection.progress();
  }
  /** Ends the connection because the server broke the contract, in the hope of a better one. */
  fault(reason, what) {
    this.#reconnection.fault();
    this.leave(reason, what);
  }
  /** Ends the connection because of something that another one may bring. */
  leave(reason, what) {
    const details = { fieldViolations: [], metadata: {}, retryAfterMs: 0 };
    const message = `the server ${what}; reconnecting`;
    this.do({ do: "give", event: { type: "problem", reason, message, ...details } });
    this.end(lost(`the server ${what}`));
  }
  /** The time of `Connection.nextDeadline` has come. */
  onTimer(now2) {
    const ending = this.live?.onTimer(now2, this.#patience) ?? null;
    if (ending !== null) {
      this.end(ending);
    }
  }
  // ---- the end of a connection ----
  /** Ends the connection, unless it is being ended already. */
  end(ending, graceful = false) {
    const connection = this.live;
    if (connection !== null) {
      connection.closing = true;
      this.do({ do: "close", ending, graceful });
    }
  }
  /** The connection has ended, or could not be opened. */
  onDisconnected(now2, ending) {
    const connection = this.#current;
    this.#current = null;
    if (this.#subject.over) {
      return;
    }
    const opened = connection?.opened ?? false;
    if (opened) {
      this.do({ do: "give", event: { type: "reconnecting", why: inWords(ending) } });
    }
    const askedToResume = connection !== null && connection.resumes && connection.openTaken;
    const next = this.#reconnection.next(now2, ending, { opened, askedToResume });
    if (next.do === "over") {
      this.finish();
    } else {
      this.#subject.over = next.do === "fail";
      this.do(next);
    }
  }
  /** All is done. */
  finish() {
    this.#subject.finish();
    this.do({ do: "over" });
  }
  // ---- effects ----
  do(effect) {
    this.#effects.push(effect);
  }
  /** Returns the effects since the last call. */
  out() {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }
};

// src/protocol/kept-chunks.ts
var MAX_HELD_BYTES = 8 * 1024 * 1024;
var KeptChunks = class {
  constructor(maxHeldBytes = MAX_HELD_BYTES) {
    this.maxHeldBytes = maxHeldBytes;
  }
  maxHeldBytes;
  #chunks = /* @__PURE__ */ new Map();
  #first = 0;
  #end = 0;
  #bytes = 0;
  #heldBytes = 0;
  /** The next to write to the current connection, and one more than the last ever written. */
  #cursor = 0;
  #written = 0;
  /** Chunks below the first are acknowledged; those below the second are not needed again. */
  #safe = 0;
  #keep = 0;
  /** The lowest sequence number that is kept; all below are acknowledged. */
  get first() {
    return this.#first;
  }
  /** The sequence number of the next new chunk. */
  get end() {
    return this.#end;
  }
  /** The lowest sequence number that is not acknowledged. */
  get acknowledged() {
    return this.#safe;
  }
  /** The number of unacknowledged chunks. */
  get unacknowledged() {
    return this.#end - this.#safe;
  }
  /** Bytes of unacknowledged audio. */
  get bytes() {
    return this.#bytes;
  }
  /** Bytes of acknowledged audio that is still kept. */
  get heldBytes() {
    return this.#heldBytes;
  }
  /** The number of chunks written to an earlier connection, and not to the current one. */
  get toRepeat() {
    return this.#written - this.#cursor;
  }
  /** Appends a new chunk. */
  add(chunk) {
    this.#chunks.set(this.#end, { ...chunk, seq: this.#end });
    this.#end += 1;
    this.#bytes += chunk.data.length;
  }
  /** Returns the next chunk to write to the current connection; null if there is none. */
  take() {
    const chunk = this.#chunks.get(this.#cursor);
    if (chunk === void 0) {
      return null;
    }
    this.#cursor += 1;
    this.#written = Math.max(this.#written, this.#cursor);
    this.#drop();
    return chunk;
  }
  /**
   * Notes that chunks below `nextSeq` are acknowledged. Returns whether any of them is new.
   *
   * Acknowledged chunks from `keepSeq` on may be needed again; null: none of them. Chunks that were
   * never written stay unacknowledged, whatever the server says. Chunks that were not written to
   * the current connection are still written, so that it has no gap.
   */
  ack(nextSeq, keepSeq = null) {
    const before = this.#safe;
    this.#becomeSafe(nextSeq);
    this.#keep = Math.max(this.#keep, Math.min(keepSeq ?? this.#safe, this.#safe));
    this.#drop();
    return this.#safe > before;
  }
  /**
   * Starts a new connection with this chunk: all below are acknowledged. If the server asks for
   * chunks that are no longer kept, it gets those that are.
   */
  beginAt(nextSeq) {
    this.#becomeSafe(nextSeq);
    this.#keep = Math.max(this.#keep, Math.min(nextSeq, this.#written));
    this.#cursor = Math.max(this.#first, Math.min(nextSeq, this.#written));
    this.#drop();
  }
  /**
   * Writes this chunk and all after it again. If `emptied`, the chunk loses its audio and its time.
   * Does nothing, and returns false, if the chunk has yet to be written to the current connection.
   */
  againFrom(seq, emptied) {
    const chunk = this.#chunks.get(seq);
    if (chunk === void 0 || seq >= this.#cursor) {
      return false;
    }
    this.#cursor = seq;
    if (emptied) {
      this.#chunks.set(seq, { ...chunk, data: new Uint8Array(), clientMs: 0 });
      if (seq < this.#safe) {
        this.#heldBytes -= chunk.data.length;
      } else {
        this.#bytes -= chunk.data.length;
      }
    }
    return true;
  }
  /** Drops all chunks. */
  forget() {
    this.#chunks.clear();
    this.#first = this.#cursor = this.#written = this.#safe = this.#keep = this.#end;
    this.#bytes = this.#heldBytes = 0;
  }
  #becomeSafe(nextSeq) {
    const safe = Math.max(this.#safe, Math.min(nextSeq, this.#written));
    for (let seq = this.#safe; seq < safe; seq += 1) {
      const size = this.#chunks.get(seq)?.data.length ?? 0;
      this.#bytes -= size;
      this.#heldBytes += size;
    }
    this.#safe = safe;
  }
  #drop() {
    const end = Math.min(this.#safe, this.#cursor);
    while (this.#first < end && (this.#first < this.#keep || this.#heldBytes > this.maxHeldBytes)) {
      this.#heldBytes -= this.#chunks.get(this.#first)?.data.length ?? 0;
      this.#chunks.delete(this.#first);
      this.#first += 1;
    }
  }
};

// src/protocol/state.ts
var NO_LIMITS = {
  maxChunkBytes: 64 * 1024,
  pauseMs: 0,
  maxDurationMs: 0,
  maxLengthBytes: 0,
  resultDeadlineMs: 0,
  resumeWithinMs: 0
};
var SessionState = class {
  /** The chunks that the session may still have to send. New chunks are added here. */
  kept = new KeptChunks();
  /** Whether the app is playing speech. */
  playing = false;
  /** Whether the app has closed the session, and whether Close was written to any connection. */
  closing = false;
  closeWritten = false;
  /** Empty until the session is open. */
  sessionId = "";
  resumeToken = "";
  limits = NO_LIMITS;
  traceparent = "";
  /** How often a connection asked to resume. */
  resumeAttempts = 0;
  results = 0;
  missing = 0;
  repeated = 0;
  resumes = 0;
  /** One more than the highest utterance index that the server has mentioned. */
  awaited = 0;
  /** Whether the session is closed or lost. */
  over = false;
  /** The number of results and missing utterances so far; also the next expected index. */
  get seen() {
    return this.results + this.missing;
  }
  get isKnown() {
    return this.sessionId !== "";
  }
  /** A server forgets a session when it has done everything that it was asked to do. */
  isDoneBy(reason) {
    const isComplete = this.kept.unacknowledged === 0 && this.seen >= this.awaited;
    return reason === "SESSION_NOT_FOUND" && this.closeWritten && isComplete;
  }
  finish() {
    this.over = true;
    this.kept.forget();
  }
  get counts() {
    return {
      chunks: this.kept.end,
      utterances: this.awaited,
      results: this.results,
      missing: this.missing,
      repeated: this.repeated,
      resumes: this.resumes
    };
  }
  /** Notes that the server has mentioned this utterance. */
  expect(index) {
    this.awaited = Math.max(this.awaited, index + 1);
  }
  refused({ reason, message, fieldViolations }) {
    return new SessionRefusedError(reason, message, fieldViolations);
  }
  unavailable(reason, message, retryAfterMs) {
    return new SessionUnavailableError(reason, message, retryAfterMs);
  }
  /** Returns the error that says what is lost if the session ends now. */
  lost(reason, message, options) {
    const unfinished = {
      unacknowledgedChunks: this.kept.unacknowledged,
      unacknowledgedBytes: this.kept.bytes,
      resultsSeen: this.seen
    };
    return new SessionLostError(reason, message, unfinished, options);
  }
};

// src/protocol/early-audio.ts
var MAX_EARLY_BYTES = 16 * 1024 * 1024;
var OVERHEAD_BYTES = 128;
var EarlyAudio = class {
  #pieces = /* @__PURE__ */ new Map();
  #bytes = 0;
  /** Keeps audio for the result that follows. Returns whether there was room. */
  put(key, data) {
    this.take(key);
    this.#pieces.set(key, data);
    this.#bytes += OVERHEAD_BYTES + data.length;
    return this.#bytes <= MAX_EARLY_BYTES;
  }
  /** Returns the audio of a result, if there is any. */
  take(key) {
    const data = this.#pieces.get(key);
    if (data !== void 0) {
      this.#pieces.delete(key);
      this.#bytes -= OVERHEAD_BYTES + data.length;
    }
    return data;
  }
};

// src/protocol/stream.ts
var CONFIRM_MS = 200;
var SessionStream = class {
  constructor(connection) {
    this.connection = connection;
  }
  connection;
  /** Chunks that were refused on this connection: sent again as they were, or emptied. */
  refused = /* @__PURE__ */ new Map();
  /** Speech by the index of its result. */
  speech = new EarlyAudio();
  /** When results are confirmed even without another message, and whether that time has come. */
  confirmAt = null;
  confirmDue = false;
  #seenSaid = 0;
  #playingSaid = false;
  #closeSaid = false;
  /** Returns when something is due on this connection; null if nothing is. */
  nextDeadline() {
    return this.connection.closing ? null : earliest(this.connection.nextDeadline(), this.confirmAt);
  }
  /** Schedules a confirmation, unless one is scheduled already. */
  confirmSoon(now2) {
    if (this.confirmAt === null && !this.confirmDue) {
      this.confirmAt = now2 + CONFIRM_MS;
    }
  }
  /** The time of `nextDeadline` has come. */
  onTimer(now2) {
    if (this.confirmAt !== null && this.confirmAt <= now2) {
      this.confirmAt = null;
      this.confirmDue = true;
    }
  }
  /** Returns the next frame to write; null if there is none now. */
  take(state, newSession) {
    const { openTaken, opened, closing } = this.connection;
    if (!openTaken) {
      return { kind: "message", message: this.#takeOpen(state, newSession) };
    }
    if (!opened) {
      return null;
    }
    if (this.confirmDue && this.#seenSaid < state.seen) {
      return this.#text({}, state);
    }
    return closing ? null : this.#takeNext(state) ?? this.#takeAsk(state);
  }
  #takeOpen(state, newSession) {
    this.connection.openTaken = true;
    if (!this.connection.resumes) {
      return { open: { new: newSession } };
    }
    this.#seenSaid = state.seen;
    state.resumeAttempts += 1;
    const resume = {
      sessionId: state.sessionId,
      resumeToken: state.resumeToken,
      resultsSeen: state.seen,
      nextSeq: state.kept.acknowledged,
      keptSeq: state.kept.first,
      tries: state.resumeAttempts
    };
    return { open: { resume } };
  }
  #takeNext(state) {
    if (this.#playingSaid !== state.playing) {
      this.#playingSaid = state.playing;
      return this.#text(state.playing ? { playbackStarted: {} } : { playbackEnded: {} }, state);
    }
    const chunk = state.kept.take();
    if (chunk !== null) {
      return { kind: "audio", chunk };
    }
    if (state.closing && !this.#closeSaid) {
      this.#closeSaid = state.closeWritten = true;
      return this.#text({ close: {} }, state);
    }
    return null;
  }
  #takeAsk(state) {
    return this.connection.askDue ? this.#text({}, state) : null;
  }
  /** Returns a text message, with a confirmation if one is missing. */
  #text(message, state) {
    this.connection.askDue = false;
    this.confirmAt = null;
    this.confirmDue = false;
    if (this.#seenSaid === state.seen) {
      return { kind: "message", message };
    }
    this.#seenSaid = state.seen;
    return { kind: "message", message: { ...message, resultsSeen: state.seen } };
  }
};

// src/protocol/wire.ts
var CHUNK_BYTES = 64 * 1024;
var NO_SPEECH = new Uint8Array();
function eventsOf(frame) {
  return messageEvents(frame).map(eventOf);
}
function eventOf(event) {
  return readFirst(event, READERS) ?? { kind: "unknown" };
}
var READERS = {
  opened: openedFrom,
  audioAck: (ack) => ({
    kind: "audioAck",
    nextSeq: integerOf(ack, "nextSeq"),
    keepSeq: optionalInteger(ack, "keepSeq")
  }),
  utterance: (event) => ({
    kind: "progress",
    index: integerOf(event, "utteranceIndex"),
    event: progressFrom(event)
  }),
  partial: (event) => {
    const partial = partialFrom(event);
    return { kind: "progress", index: partial.index, event: partial };
  },
  result: (event) => ({ kind: "outcome", event: resultFrom(event) }),
  missing: (event) => ({ kind: "outcome", event: missingFrom(event) }),
  goAway: goAwayFrom,
  error: (event) => ({ kind: "error", error: errorFrom(event) }),
  closed: (event) => ({
    kind: "closed",
    results: integerOf(event, "results"),
    missing: integerOf(event, "missing")
  })
};
function openedFrom(opened) {
  const limits = fieldsOf(opened, "limits");
  return {
    kind: "opened",
    sessionId: textOf(opened, "sessionId"),
    resumeToken: textOf(opened, "resumeToken"),
    limits: {
      maxChunkBytes: integerOf(limits, "maxChunkBytes") || CHUNK_BYTES,
      pauseMs: integerOf(limits, "pauseMs"),
      maxDurationMs: integerOf(limits, "maxDurationMs"),
      maxLengthBytes: integerOf(limits, "maxLengthBytes"),
      resultDeadlineMs: integerOf(limits, "resultDeadlineMs"),
      resumeWithinMs: integerOf(limits, "resumeWithinMs")
    },
    silenceMs: integerOf(limits, "silenceMs"),
    nextSeq: integerOf(opened, "nextSeq"),
    traceparent: textOf(opened, "traceparent")
  };
}
function resultFrom(result) {
  return {
    type: "result",
    index: integerOf(result, "utteranceIndex"),
    direction: directionOf(result),
    kind: kindOf(result),
    texts: textsOf(result),
    speech: NO_SPEECH,
    speechFormat: formatOf(result, "speechFormat"),
    joined: integersOf(result, "joinedUtterances"),
    lost: integersOf(result, "lostUtterances"),
    jobId: textOf(result, "jobId"),
    nodeId: textOf(result, "nodeId"),
    attempts: integerOf(result, "attempts"),
    timings: timingsOf(result),
    turnBroken: result.turnBroken === true,
    room: result.room === void 0 ? null : receiptFrom(fieldsOf(result, "room"))
  };
}
function receiptFrom(receipt) {
  return {
    roomIndex: integerOf(receipt, "roomIndex"),
    delivered: textListOf(receipt, "delivered"),
    missing: messagesOf(receipt, "missing").map((each) => {
      const { reason, message } = errorFrom(fieldsOf(each, "why"));
      return { language: textOf(each, "language"), reason, message };
    })
  };
}
function missingFrom(missing) {
  const why = errorFrom(fieldsOf(missing, "why"));
  return {
    type: "missing",
    index: integerOf(missing, "utteranceIndex"),
    direction: directionOf(missing),
    reason: why.reason,
    message: why.message,
    lost: integersOf(missing, "lostUtterances")
  };
}
function partialFrom(partial) {
  return {
    type: "partial",
    index: integerOf(partial, "utteranceIndex"),
    direction: directionOf(partial),
    texts: textsOf(partial)
  };
}
function progressFrom(event) {
  const common = { index: integerOf(event, "utteranceIndex"), direction: directionOf(event) };
  if (event.finalized !== void 0) {
    const finalized = fieldsOf(event, "finalized");
    const reason = enumOf(finalized, "reason", "FINALIZE_REASON_");
    return { type: "finalized", ...common, reason, audioMs: integerOf(finalized, "audioMs") };
  }
  if (event.accepted !== void 0) {
    const accepted = fieldsOf(event, "accepted");
    return {
      type: "accepted",
      ...common,
      jobId: textOf(accepted, "jobId"),
      nodeId: textOf(accepted, "nodeId"),
      attempt: integerOf(accepted, "attempt")
    };
  }
  if (event.retrying !== void 0) {
    const retrying = fieldsOf(event, "retrying");
    const { reason, message } = errorFrom(fieldsOf(retrying, "why"));
    const attempt = integerOf(retrying, "attempt");
    return { type: "retrying", ...common, attempt, reason, message };
  }
  return null;
}
function directionOf(event) {
  const direction = fieldsOf(event, "direction");
  return { src: textOf(direction, "src"), tgt: textOf(direction, "tgt") };
}
function timingsOf(result) {
  const timings = fieldsOf(result, "timings");
  return {
    audioMs: integerOf(timings, "audioMs"),
    hangoverMs: integerOf(timings, "hangoverMs"),
    dispatchMs: integerOf(timings, "dispatchMs"),
    nodeMs: integerOf(timings, "nodeMs"),
    deliverMs: integerOf(timings, "deliverMs"),
    stages: messagesOf(timings, "stages").map((each) => ({
      stage: enumOf(each, "stage", "STAGE_KIND_"),
      startedMs: integerOf(each, "startedMs"),
      tookMs: integerOf(each, "tookMs")
    }))
  };
}

// src/protocol/machine.ts
var SessionProtocol = class {
  /**
   * The facts that outlive a connection. The app's side adds chunks to `state.kept` and sets
   * `state.playing` and `state.closing`; the protocol changes everything else.
   */
  state = new SessionState();
  #newSession;
  #connections;
  #stream = null;
  constructor({ newSession, random, reconnectMs }) {
    this.#newSession = newSession;
    this.#connections = new Connections({ subject: this.state, random, reconnectMs });
  }
  // ---- queries of the shell ----
  /** Whether the session is open on the current connection. */
  get opened() {
    return this.#connections.opened;
  }
  /** Returns when to call `onTimer`; null if nothing is due. */
  nextDeadline() {
    return this.#stream?.nextDeadline() ?? null;
  }
  /** Returns why the connection ended, by its close code and the gateway's events. */
  ending(now2, code, said) {
    return this.#connections.ending(now2, code, said);
  }
  // ---- the connection ----
  /** A connection is about to be opened. Returns the deadline for that. */
  onConnecting(now2) {
    return this.#connections.onConnecting(now2);
  }
  /** A new connection is open; its first message is Open. */
  onConnected(now2) {
    this.#stream = new SessionStream(this.#connections.onConnected(now2));
  }
  /** A text frame has arrived. One without events only shows that the gateway is alive. */
  onText(now2, frame) {
    this.#connections.onText(frame, eventsOf, (_, event) => {
      if (this.#stream !== null) {
        this.#onEvent(now2, this.#stream, event);
      }
    });
    return this.#connections.out();
  }
  /** A binary frame has arrived: the speech of the result that follows. */
  onBinary(frame) {
    this.#connections.hear();
    const speech = speechOf(frame);
    if (speech !== null && this.#connections.live?.opened === true) {
      if (this.#stream?.speech.put(speech.index, speech.data) === false) {
        this.#fault("INVALID_MESSAGE", "sent too much speech before its results");
      }
    }
    return this.#connections.out();
  }
  #onEvent(now2, stream, event) {
    switch (event.kind) {
      case "opened":
        this.#onOpened(now2, stream, event);
        break;
      case "audioAck":
        if (this.state.kept.ack(event.nextSeq, event.keepSeq)) {
          this.#connections.progress();
        }
        break;
      case "progress":
        this.#onProgress(event.index, event.event);
        break;
      case "outcome":
        this.#onOutcome(now2, stream, event.event);
        break;
      case "goAway":
        this.#connections.onGoAway(now2, event);
        break;
      case "error":
        this.#onError(stream, event.error);
        break;
      case "closed":
        this.#onClosed(stream, event.results + event.missing);
        break;
      case "unknown":
        break;
    }
  }
  #onProgress(index, event) {
    this.state.expect(index);
    const isLate = event?.type === "partial" && index < this.state.seen;
    if (event !== null && !isLate) {
      this.#connections.do({ do: "give", event });
    }
  }
  #onOpened(now2, stream, opened) {
    const { opened: isOpen, resumes } = stream.connection;
    if (isOpen) {
      return;
    }
    const state = this.state;
    if (!resumes && (opened.sessionId === "" || opened.resumeToken === "")) {
      const what = "opened a session without sessionId or resumeToken";
      this.#fault("INVALID_MESSAGE", what);
      return;
    }
    if (opened.nextSeq < state.kept.first) {
      const what = `asked again for chunk ${opened.nextSeq}, which it had acknowledged`;
      this.#fault("OUT_OF_ORDER", what);
      return;
    }
    state.sessionId = opened.sessionId || state.sessionId;
    state.resumeToken = opened.resumeToken || state.resumeToken;
    state.limits = opened.limits;
    state.traceparent = opened.traceparent;
    const { silenceMs, limits } = opened;
    const announced = { silenceMs, resumeWithinMs: limits.resumeWithinMs };
    const awayMs = this.#connections.onOpened(now2, announced);
    state.kept.beginAt(opened.nextSeq);
    if (resumes) {
      state.resumes += 1;
      const event = { type: "resumed", awayMs, chunksAgain: state.kept.toRepeat };
      this.#connections.do({ do: "give", event });
    }
  }
  #onOutcome(now2, stream, outcome) {
    const state = this.state;
    const speech = stream.speech.take(outcome.index);
    state.expect(outcome.index);
    if (outcome.index < state.seen) {
      state.repeated += 1;
      return;
    }
    if (outcome.index > state.seen) {
      this.#fault("OUT_OF_ORDER", `sent index ${outcome.index} before ${state.seen}`);
      return;
    }
    this.#connections.progress();
    stream.confirmSoon(now2);
    if (outcome.type === "result") {
      state.results += 1;
      this.#connections.do({
        do: "give",
        event: speech === void 0 ? outcome : { ...outcome, speech }
      });
    } else {
      state.missing += 1;
      this.#connections.do({ do: "give", event: outcome });
    }
  }
  #onError(stream, error) {
    const { connection } = stream;
    connection.lastError = error;
    if (!connection.opened) {
      this.#connections.end(refused(error));
      return;
    }
    const expected = error.metadata.expected_seq ?? "";
    if (/^\d{1,16}$/.test(expected)) {
      connection.lastError = null;
      const isGap = (error.metadata.seq ?? expected) !== expected;
      if (!this.#sendAgain(stream, Number(expected), isGap)) {
        return;
      }
    }
    this.#connections.do({ do: "give", event: problemFrom(error) });
  }
  /**
   * Sends chunks again, from one that was refused; without its audio and time, which the server
   * cannot use. Returns false if the refused chunk was only in flight behind that one.
   */
  #sendAgain(stream, seq, isGap) {
    if (isGap && stream.refused.has(seq)) {
      return false;
    }
    if (stream.refused.get(seq) !== "emptied" && this.state.kept.againFrom(seq, !isGap)) {
      stream.refused.set(seq, isGap ? "gap" : "emptied");
    }
    return true;
  }
  #onClosed(stream, total) {
    const state = this.state;
    if (total > state.seen) {
      state.expect(total - 1);
      const what = `closed the session after ${state.seen} of ${total} results`;
      this.#fault("OUT_OF_ORDER", what);
    } else if (state.kept.unacknowledged > 0 && !state.closeWritten) {
      state.over = true;
      const what = "the server closed the session before the app";
      this.#connections.do({ do: "fail", error: state.lost("CLOSED", what) });
      this.#connections.end({ kind: "left" });
    } else {
      stream.confirmDue = true;
      this.#connections.finish();
      this.#connections.end({ kind: "left" }, true);
    }
  }
  #fault(reason, what) {
    this.#connections.fault(reason, what);
  }
  /** The time of `nextDeadline` has come. */
  onTimer(now2) {
    this.#stream?.onTimer(now2);
    this.#connections.onTimer(now2);
    return this.#connections.out();
  }
  /** The connection has ended, or could not be opened. Unacknowledged chunks stay. */
  onDisconnected(now2, ending) {
    this.#stream = null;
    this.#connections.onDisconnected(now2, ending);
    return this.#connections.out();
  }
  /** Returns the next frame to write; null if there is none now. */
  take() {
    return this.#stream?.take(this.state, this.#newSession) ?? null;
  }
};

// src/session/inbox.ts
var UNREAD_EVENTS = 256;
var UNREAD_BYTES = 8 * 1024 * 1024;
var MAX_EVENTS = 1e4;
var MAX_BYTES = 64 * 1024 * 1024;
var EventQueue = class {
  constructor(sorting) {
    this.sorting = sorting;
  }
  sorting;
  /** Whether the app has asked for this queue. */
  isRead = false;
  /** How many events were dropped because it had not. */
  dropped = 0;
  /** By their order of arrival. */
  #waiting = /* @__PURE__ */ new Map();
  /** The places of those that can be replaced, by key. */
  #places = /* @__PURE__ */ new Map();
  #arrived = 0;
  #bytes = 0;
  #wake = [];
  #ended = false;
  #error = void 0;
  put(event) {
    const key = this.sorting.keyOf(event);
    if (key !== null) {
      const place = this.#places.get(key);
      if (place !== void 0) {
        this.#waiting.set(place, event);
        return;
      }
      this.#places.set(key, this.#arrived);
    }
    this.#waiting.set(this.#arrived, event);
    this.#arrived += 1;
    this.#bytes += this.sorting.bytesOf(event);
    this.#wakeReaders();
  }
  /** Ends the queue. Readers get the error, if any, after the last event. */
  end(error) {
    if (!this.#ended) {
      this.#ended = true;
      this.#error = error;
      this.#wakeReaders();
    }
  }
  exceeds(events, bytes) {
    return this.#waiting.size > events || this.#bytes > bytes;
  }
  /** Drops the oldest events beyond the limits. */
  trim(events, bytes) {
    while (this.exceeds(events, bytes)) {
      this.#pop();
      this.dropped += 1;
    }
  }
  /** Yields events until the end. */
  read() {
    const next = async () => {
      for (; ; ) {
        const event = this.#pop();
        if (event !== void 0) {
          return { done: false, value: event };
        }
        if (this.#ended) {
          if (this.#error !== void 0) {
            throw this.#error;
          }
          return { done: true, value: void 0 };
        }
        await new Promise((resolve) => this.#wake.push(resolve));
      }
    };
    const iterator = {
      next,
      [Symbol.asyncIterator]: () => iterator
    };
    return iterator;
  }
  #pop() {
    const [oldest] = this.#waiting;
    if (oldest === void 0) {
      return void 0;
    }
    const [place, event] = oldest;
    this.#waiting.delete(place);
    this.#bytes -= this.sorting.bytesOf(event);
    const key = this.sorting.keyOf(event);
    if (key !== null) {
      this.#places.delete(key);
    }
    return event;
  }
  #wakeReaders() {
    const waiting = this.#wake;
    this.#wake = [];
    for (const resolve of waiting) {
      resolve();
    }
  }
};
var Inbox = class {
  constructor(sorting) {
    this.sorting = sorting;
    this.events = new EventQueue(sorting);
    this.results = new EventQueue(sorting);
  }
  sorting;
  events;
  results;
  /** Adds an event to the queues that have it. Returns whether there was room. */
  put(event) {
    this.events.put(event);
    if (this.sorting.isOutcome(event)) {
      this.results.put(event);
    }
    limit(this.events, this.results.isRead);
    limit(this.results, this.events.isRead);
    return !this.events.exceeds(MAX_EVENTS, MAX_BYTES) && !this.results.exceeds(MAX_EVENTS, MAX_BYTES);
  }
  end(error) {
    this.events.end(error);
    this.results.end(error);
  }
};
function limit(queue, otherIsRead) {
  if (!queue.isRead) {
    queue.trim(otherIsRead ? UNREAD_EVENTS : MAX_EVENTS, otherIsRead ? UNREAD_BYTES : MAX_BYTES);
  }
}

// src/session/link.ts
var SOCKET_BYTES = 256 * 1024;
var ROOM_MS = 20;
var FLUSH_MS = 1e3;
var MAX_TIMER_MS = 2 ** 31 - 1;
var Link = class {
  #options;
  #protocol;
  #at;
  #socket = null;
  /** Ends the current connection for the loop. */
  #leave = () => void 0;
  #timer;
  #roomTimer;
  #flushTimer;
  #retryAfterMs = 0;
  #error = null;
  #aborter = new AbortController();
  #waiters = /* @__PURE__ */ new Set();
  constructor(options) {
    this.#options = options;
    this.#protocol = options.protocol;
    this.#at = Math.floor(Math.random() * options.addresses.length);
  }
  /** Returns when all is done. Throws a Failure if it cannot continue. */
  async run() {
    const { addresses } = this.#options;
    while (!this.#aborter.signal.aborted) {
      const address = addresses[this.#at % addresses.length] ?? "";
      const ending = await this.#connection(address);
      this.#do(this.#protocol.onDisconnected(now(), ending));
      this.#changed();
      this.#checkError();
      if (this.#protocol.state.over) {
        return;
      }
      this.#at += 1;
      await this.#sleep(this.#retryAfterMs);
    }
    this.#checkError();
  }
  #checkError() {
    const { failure } = this.#options.token;
    if (this.#error !== null) {
      if (failure !== void 0) {
        this.#error.cause ??= failure;
      }
      throw this.#error;
    }
  }
  /** There may be something to write. */
  wake() {
    this.#pump();
    this.#arm();
    this.#changed();
  }
  /** Returns when the condition holds. It is checked after every change. */
  async until(condition) {
    while (!condition()) {
      await new Promise((resolve) => this.#waiters.add(resolve));
    }
  }
  /** Ends everything, with this error if there is one, whatever it is doing. */
  abort(error = null) {
    this.#error ??= error;
    this.#protocol.state.over = true;
    this.#aborter.abort();
    this.#leave({ kind: "left" });
  }
  // ---- one connection ----
  async #connection(address) {
    const { token, webSocket } = this.#options;
    const answerBy = this.#protocol.onConnecting(now());
    const failure = await token.ask(answerBy - now());
    if (failure !== null) {
      return failure;
    }
    const dialled = await dial({
      address,
      token: token.current,
      withinMs: answerBy - now(),
      constructor: webSocket,
      signal: this.#aborter.signal
    });
    if ("kind" in dialled) {
      return token.judge(dialled, false);
    }
    this.#protocol.onConnected(now());
    const ending = await this.#converse(dialled);
    return token.judge(ending, this.#protocol.opened);
  }
  async #converse(webSocket) {
    let leave2 = () => void 0;
    const ended = new Promise((resolve) => {
      leave2 = resolve;
    });
    this.#leave = leave2;
    const socket = new Socket(webSocket, {
      onText: (frame) => {
        this.#do(this.#protocol.onText(now(), frame));
        this.wake();
      },
      onBinary: (frame) => {
        this.#do(this.#protocol.onBinary(frame));
        this.wake();
      },
      onClosed: (code, reason) => {
        leave2(this.#protocol.ending(now(), code, reason));
      }
    });
    this.#socket = socket;
    if (this.#aborter.signal.aborted) {
      leave2({ kind: "left" });
    }
    this.wake();
    const ending = await ended;
    this.#socket = null;
    clearTimeout(this.#timer);
    clearTimeout(this.#roomTimer);
    clearTimeout(this.#flushTimer);
    socket.abandon();
    return ending;
  }
  /** Writes what there is to write, as far as the socket has room. */
  #pump() {
    const socket = this.#socket;
    if (socket === null) {
      return;
    }
    clearTimeout(this.#roomTimer);
    try {
      while (socket.waiting < SOCKET_BYTES) {
        const next = this.#protocol.take();
        if (next === null) {
          return;
        }
        socket.send(this.#options.encode(next));
      }
    } catch (error) {
      this.#leave(lost(`writing failed: ${error instanceof Error ? error.message : ""}`));
      return;
    }
    this.#roomTimer = setTimeout(() => {
      this.#pump();
    }, ROOM_MS);
  }
  // ---- time ----
  #arm() {
    clearTimeout(this.#timer);
    const deadline = this.#socket === null ? null : this.#protocol.nextDeadline();
    if (deadline !== null) {
      const wait = Math.min(MAX_TIMER_MS, Math.max(0, Math.ceil(deadline - now())));
      this.#timer = setTimeout(() => {
        this.#do(this.#protocol.onTimer(now()));
        this.wake();
      }, wait);
    }
  }
  async #sleep(ms) {
    const { signal } = this.#aborter;
    if (signal.aborted) {
      return;
    }
    await new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      signal.addEventListener("abort", done);
    });
  }
  #changed() {
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const resolve of waiters) {
      resolve();
    }
  }
  // ---- effects ----
  /** Does what the protocol asks for after a step that the app took. */
  carryOut(effects) {
    this.#do(effects);
    this.wake();
  }
  #do(effects) {
    for (const effect of effects) {
      switch (effect.do) {
        case "give":
          this.#options.give(effect.event);
          break;
        case "close":
          this.#close(effect.ending, effect.graceful);
          break;
        case "retry":
          this.#retryAfterMs = effect.afterMs;
          break;
        case "over":
          this.#options.over();
          break;
        case "fail":
          this.#error ??= effect.error;
          break;
      }
    }
  }
  #close(ending, graceful) {
    const leave2 = this.#leave;
    if (!graceful) {
      leave2(ending);
      return;
    }
    this.#pump();
    this.#socket?.close();
    clearTimeout(this.#flushTimer);
    this.#flushTimer = setTimeout(() => {
      leave2(ending);
    }, FLUSH_MS);
  }
};
function now() {
  return performance.now();
}

// src/session/channel.ts
var Channel = class {
  #options;
  #inbox;
  #link;
  #done = false;
  #failure = void 0;
  constructor(options) {
    this.#options = options;
    this.#inbox = new Inbox(options.sorting);
    this.#link = new Link({
      ...options,
      give: (event) => {
        this.#give(event);
      },
      over: () => {
        this.#inbox.end();
      }
    });
  }
  /** Connects, and goes on to do so until the end. */
  start() {
    this.#link.run().then(
      () => {
        this.#end(void 0);
      },
      (error) => {
        this.#end(error);
      }
    );
  }
  /** Whether it has ended. */
  get done() {
    return this.#done;
  }
  /** Throws the error because of which it has ended, if there is one. */
  checkFailure() {
    if (this.#failure !== void 0) {
      throw this.#failure;
    }
  }
  /** Returns when the condition holds, or it has ended. Throws if it was lost. */
  async until(condition) {
    await this.#link.until(() => this.#done || condition());
    this.checkFailure();
  }
  /** There may be something to write. */
  wake() {
    this.#link.wake();
  }
  /** Does what the protocol asks for after a step that the app took. */
  carryOut(effects) {
    this.#link.carryOut(effects);
  }
  /** Ends connections and attempts to connect, without an error. */
  stop() {
    this.#link.abort();
  }
  /** Drops everything at once. */
  abort(reason, message) {
    if (!this.#done) {
      const error = this.#options.protocol.state.lost(reason, message);
      this.#link.abort(error);
      this.#end(error);
    }
  }
  events() {
    this.#inbox.events.isRead = true;
    return this.#inbox.events.read();
  }
  results() {
    const queue = this.#inbox.results;
    if (queue.dropped > 0 && !queue.isRead) {
      throw new TypeError(
        `results() was called too late: the first ${queue.dropped} results were dropped`
      );
    }
    queue.isRead = true;
    return queue.read();
  }
  #give(event) {
    if (!this.#inbox.put(event)) {
      this.abort("UNREAD", "the app does not read its results and events");
    }
  }
  #end(error) {
    if (!this.#done) {
      this.#done = true;
      this.#failure = error;
      this.#inbox.end(error);
      this.#link.wake();
    }
  }
};

// src/session/chunks.ts
var EMPTY = new Uint8Array();
var SPEAKERS2 = ["a", "b"];
var Cutter = class {
  #format;
  #directions;
  #chunkBytes;
  #rest = EMPTY;
  #at;
  #lastMs = 0;
  /**
   * @param directions the fixed direction, or both directions of a conversation.
   * @param chunkMs the longest chunk of PCM.
   */
  constructor(format, directions, chunkMs) {
    this.#format = format;
    this.#directions = directions;
    const frames = Math.max(1, Math.floor(format.sampleRateHz * chunkMs / 1e3));
    this.#chunkBytes = frames * frameBytes(format);
    this.#at = directions.length === 1 ? 0 : null;
  }
  /** Who speaks in the latest audio. */
  get speaker() {
    const isFixed = this.#directions.length === 1 || this.#at === null;
    return isFixed ? "none" : SPEAKERS2[this.#at ?? 0] ?? "none";
  }
  /** Sets who speaks in the audio that follows. Throws RangeError, and changes nothing then. */
  setDirection(direction) {
    const found = this.#find(direction);
    if (this.#rest.length > 0 && found !== this.#at) {
      throw new RangeError(
        `audio: the audio before the change of direction ends within a sample: ${this.#rest.length} of ${frameBytes(this.#format)} bytes`
      );
    }
    this.#at = found;
  }
  #find(direction) {
    const allowed = this.#directions.map(({ src, tgt }) => `${src} to ${tgt}`).join(" or ");
    if (direction === void 0) {
      if (this.#directions.length === 1) {
        return 0;
      }
      throw new RangeError(`direction: is required, and must be ${allowed} in this session`);
    }
    const found = this.#directions.findIndex(
      ({ src, tgt }) => isSame(src, direction.src) && isSame(tgt, direction.tgt)
    );
    if (found < 0) {
      const given = `${direction.src} to ${direction.tgt}`;
      throw new RangeError(`direction: ${given} must be ${allowed} in this session`);
    }
    return found;
  }
  /**
   * Returns the chunks of some audio.
   *
   * @param data PCM of any size, or one Opus packet. It must not change later.
   * @param endMs when its end was recorded. The times of earlier chunks are counted back from it.
   * @param maxBytes the largest chunk that the server accepts.
   */
  cut(data, endMs, maxBytes) {
    if (this.#format.encoding === "OPUS") {
      if (data.length > maxBytes) {
        const most = `at most ${maxBytes} bytes`;
        throw new RangeError(`audio: an Opus packet has ${most}, not ${data.length}`);
      }
      return [{ data, clientMs: this.stamp(endMs) }];
    }
    const all = this.#rest.length === 0 ? data : concatenated(this.#rest, data);
    const frame = frameBytes(this.#format);
    const whole = all.length - all.length % frame;
    this.#rest = all.slice(whole);
    const size = Math.min(this.#chunkBytes, Math.max(frame, maxBytes - maxBytes % frame));
    const pieces = [];
    for (let start = 0; start < whole; start += size) {
      const end = Math.min(start + size, whole);
      const clientMs = this.stamp(endMs - pcmDurationMs(this.#format, whole - end));
      pieces.push({ data: all.subarray(start, end), clientMs });
    }
    return pieces;
  }
  /** Returns the time of a chunk. Times never go back, although clocks are adjusted. */
  stamp(clientMs) {
    this.#lastMs = Math.max(this.#lastMs, Math.floor(clientMs));
    return this.#lastMs;
  }
  /** Throws RangeError if the audio so far cannot be the end of an utterance. */
  checkFinish() {
    if (this.#at === null) {
      throw new RangeError("direction: nothing was sent yet, so there is no utterance to end");
    }
    const rest = this.takeRest();
    if (rest > 0) {
      throw new RangeError(`audio: ends with ${rest} bytes of an incomplete sample`);
    }
  }
  /** Drops the bytes of an incomplete sample, and returns how many there were. */
  takeRest() {
    const { length } = this.#rest;
    this.#rest = EMPTY;
    return length;
  }
};
function isSame(a, b) {
  return a.toLowerCase() === b.toLowerCase();
}
function concatenated(a, b) {
  const joined = new Uint8Array(a.length + b.length);
  joined.set(a);
  joined.set(b, a.length);
  return joined;
}

// src/session/checks.ts
var ID = /^[A-Za-z0-9._-]{1,128}$/;
var LANGUAGE = /^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$/;
function checkId(name, value) {
  if (!ID.test(value)) {
    throw new RangeError(`${name}: ${value} must be 1 to 128 characters of A-Z a-z 0-9 . _ -`);
  }
}
function checkLanguage(name, value) {
  if (typeof value !== "string" || !LANGUAGE.test(value)) {
    throw new RangeError(`${name}: ${String(value)} must be a language code such as en or zh-hant`);
  }
  return value;
}
function checkNumber(name, value, least, most) {
  if (!(value >= least && value <= most)) {
    throw new RangeError(`${name}: ${value} must be a number from ${least} to ${most}`);
  }
}
function checkText(name, value, maxCharacters) {
  if (typeof value !== "string" || value.length > maxCharacters) {
    throw new RangeError(`${name}: must be text of at most ${maxCharacters} characters`);
  }
  return value;
}
function checkWebSocket(given) {
  const runtime = globalThis;
  const found = given ?? runtime.WebSocket;
  if (found === void 0) {
    throw new TypeError(
      'WebSocket: this JavaScript runtime has none (Node.js has one from version 22 on); pass one, such as that of the package ws: import WebSocket from "ws"'
    );
  }
  return found;
}

// src/session/options.ts
var MAX_UNACKNOWLEDGED_BYTES = 8 * 1024 * 1024;
var LEAST_UNACKNOWLEDGED_BYTES = 1024 * 1024;
var CHUNK_MS = 100;
var MAX_FEATURES = 32;
var MAX_FEATURE_CHARACTERS = 256;
var MAX_PARTIAL_INTERVAL_MS = 6e4;
var MAX_ROOM_TOKEN_CHARACTERS = 512;
var MAX_NAME_CHARACTERS = 64;
var VOICE_RATES = [8e3, 16e3, 32e3, 48e3];
function checkOptions(options) {
  const directions = directionsOf(options.languages);
  const audioFormat = checkFormat(options.audioFormat ?? SPEECH_FORMAT);
  const bytes = options.maxUnacknowledgedBytes ?? MAX_UNACKNOWLEDGED_BYTES;
  const chunkMs = options.chunkMs ?? CHUNK_MS;
  checkNumber("maxUnacknowledgedBytes", bytes, LEAST_UNACKNOWLEDGED_BYTES, 2 ** 40);
  checkNumber("chunkMs", chunkMs, 1, 1e4);
  if (options.reconnectMs !== void 0) {
    checkNumber("reconnectMs", options.reconnectMs, 0, 864e5);
  }
  return {
    newSession: newSessionOf(options, directions, audioFormat),
    audioFormat,
    directions,
    reconnectMs: options.reconnectMs ?? null,
    maxUnacknowledgedBytes: bytes,
    chunkMs,
    webSocket: checkWebSocket(options.WebSocket)
  };
}
function directionsOf(languages) {
  if ("roomId" in languages) {
    return [{ src: checkLanguage("languages.language", languages.language), tgt: "" }];
  }
  if ("src" in languages) {
    const src = checkLanguage("languages.src", languages.src);
    return [{ src, tgt: checkLanguage("languages.tgt", languages.tgt) }];
  }
  const a = checkLanguage("languages.a", languages.a);
  const b = checkLanguage("languages.b", languages.b);
  if (a.toLowerCase() === b.toLowerCase()) {
    throw new RangeError(`languages.b: ${b} must differ from a`);
  }
  return [
    { src: a, tgt: b },
    { src: b, tgt: a }
  ];
}
function newSessionOf(options, directions, format) {
  const byVoice = options.pauseDetection === "voice-activity";
  if (byVoice) {
    checkAudible(format);
  }
  checkNames(options);
  const { partialIntervalMs = 0 } = options;
  checkNumber("partialIntervalMs", partialIntervalMs, 0, MAX_PARTIAL_INTERVAL_MS);
  return {
    ...languagesOf(options.languages, directions),
    audioFormat: { ...format, encoding: `AUDIO_ENCODING_${format.encoding}` },
    options: {
      requireTts: options.requireTts ?? false,
      preferredNodeId: options.preferredNodeId ?? "",
      strict: options.strict ?? false,
      partialIntervalMs: Math.floor(partialIntervalMs),
      features: checkFeatures(options.features ?? {}),
      pauseDetection: byVoice ? "PAUSE_DETECTION_VOICE_ACTIVITY" : "PAUSE_DETECTION_GAPS"
    },
    tenant: options.tenant ?? ""
  };
}
function languagesOf(languages, directions) {
  const [first, second] = directions;
  if ("roomId" in languages) {
    const { roomId, joinToken, name = "" } = languages;
    checkId("languages.roomId", roomId);
    checkText("languages.joinToken", joinToken, MAX_ROOM_TOKEN_CHARACTERS);
    checkText("languages.name", name, MAX_NAME_CHARACTERS);
    return { room: { roomId, joinToken, language: first?.src, name } };
  }
  return second === void 0 ? { direction: first } : { conversation: { a: first?.src, b: first?.tgt } };
}
function checkNames({ preferredNodeId = "", strict = false, tenant = "" }) {
  if (preferredNodeId !== "") {
    checkId("preferredNodeId", preferredNodeId);
  } else if (strict) {
    throw new RangeError("strict: requires a preferredNodeId");
  }
  if (tenant !== "") {
    checkId("tenant", tenant);
  }
}
function checkFormat(format) {
  const { encoding, sampleRateHz, channels } = format;
  if (!["PCM_S16LE", "OPUS"].includes(encoding)) {
    throw new RangeError(`audioFormat.encoding: ${encoding} must be PCM_S16LE or OPUS`);
  }
  if (!Number.isInteger(sampleRateHz)) {
    throw new RangeError(`audioFormat.sampleRateHz: ${sampleRateHz} must be an integer`);
  }
  checkNumber("audioFormat.sampleRateHz", sampleRateHz, 8e3, 48e3);
  if (channels !== 1 && channels !== 2) {
    throw new RangeError(`audioFormat.channels: ${channels} must be 1 or 2`);
  }
  return { encoding, sampleRateHz, channels };
}
function checkAudible({ encoding, sampleRateHz, channels }) {
  if (encoding !== "PCM_S16LE" || channels !== 1 || !VOICE_RATES.includes(sampleRateHz)) {
    const rates = VOICE_RATES.join(", ");
    throw new RangeError(
      `audioFormat: voice activity detection needs PCM of one channel at ${rates} Hz`
    );
  }
}
function checkFeatures(features) {
  const entries = Object.entries(features);
  if (entries.length > MAX_FEATURES) {
    throw new RangeError(`features: has ${entries.length}; at most ${MAX_FEATURES} are allowed`);
  }
  for (const [key, value] of entries) {
    const isText = typeof value === "string";
    if (!isText || Math.max(key.length, value.length) > MAX_FEATURE_CHARACTERS) {
      throw new RangeError(
        `features.${key.slice(0, 40)}: key and value must be text of at most ${MAX_FEATURE_CHARACTERS} characters`
      );
    }
  }
  return { ...features };
}

// src/session/sender.ts
var Sender = class {
  #options;
  /** Bytes of calls that are waiting. */
  #waitingBytes = 0;
  /** Keeps the chunks of one call together, and calls in order. */
  #queue = Promise.resolve();
  constructor(options) {
    this.#options = options;
  }
  /** See `Session.send`. */
  async send(audio, { direction, isFinal = false, recordedAt }) {
    const { checkWritable, maxUnacknowledgedBytes } = this.#options;
    checkWritable();
    const waiting = this.#waitingBytes + audio.byteLength;
    if (waiting > maxUnacknowledgedBytes) {
      throw new BufferFullError(waiting, maxUnacknowledgedBytes);
    }
    const data = bytesOf(audio).slice();
    if (data.length === 0 && !isFinal) {
      throw new RangeError("audio: is empty; call finish() to end the utterance");
    }
    const endMs = recordedAt === void 0 ? Date.now() : checkedTime(recordedAt);
    this.#waitingBytes += data.length;
    try {
      await this.#inOrder(() => this.#add(data, direction, isFinal, endMs));
    } finally {
      this.#waitingBytes -= data.length;
    }
  }
  async #add(data, direction, isFinal, endMs) {
    const { state, cutter, checkWritable, until, wake, maxUnacknowledgedBytes } = this.#options;
    checkWritable();
    cutter.setDirection(direction);
    const pieces = data.length > 0 ? cutter.cut(data, endMs, state.limits.maxChunkBytes) : [];
    if (isFinal) {
      cutter.checkFinish();
      if (pieces.length === 0) {
        pieces.push({ data, clientMs: cutter.stamp(endMs) });
      }
    }
    for (const [at, piece] of pieces.entries()) {
      await until(() => state.kept.bytes <= maxUnacknowledgedBytes);
      checkWritable();
      const isLast = isFinal && at === pieces.length - 1;
      state.kept.add({ ...piece, isFinal: isLast, speaker: cutter.speaker });
      wake();
    }
  }
  /** See `Session.finish`. */
  async finish() {
    const { state, cutter, checkWritable, wake } = this.#options;
    await this.#inOrder(() => {
      checkWritable();
      cutter.checkFinish();
      const clientMs = cutter.stamp(Date.now());
      const data = new Uint8Array();
      state.kept.add({ data, clientMs, isFinal: true, speaker: cutter.speaker });
      wake();
    });
  }
  /** See `Session.close`. */
  async close() {
    const { state, cutter, checkWritable, until, wake } = this.#options;
    await this.#inOrder(() => {
      if (!state.over && !state.closing) {
        checkWritable();
        cutter.takeRest();
        state.closing = true;
        wake();
      }
    });
    await until(() => false);
  }
  /** Runs a step after all earlier ones, even if those failed. */
  async #inOrder(step) {
    const run = this.#queue.then(step);
    this.#queue = run.catch(() => void 0);
    await run;
  }
};
function checkedTime(recordedAt) {
  const ms = typeof recordedAt === "number" ? Math.floor(recordedAt) : NaN;
  if (!Number.isSafeInteger(ms) || ms < 0) {
    throw new RangeError(
      `recordedAt: ${String(recordedAt)} must be milliseconds since the epoch, from 0 to 2^53 - 1`
    );
  }
  return ms;
}
function bytesOf(audio) {
  if (audio instanceof ArrayBuffer) {
    return new Uint8Array(audio);
  }
  return new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength);
}

// src/session/tokens.ts
var TOKEN = /^[A-Za-z0-9._~+-]+$/;
var TokenSource = class {
  /** What the function threw, if it could not provide the last token. */
  failure = void 0;
  /** The token for the next connection; empty for none. */
  current = "";
  #source = null;
  /** The token that was refused last, and why. */
  #refused = null;
  #said = "";
  #refusals = 0;
  constructor(token) {
    if (typeof token === "function") {
      this.#source = token;
    } else if (token !== void 0) {
      const what = whatIsWrong(token);
      if (what !== null) {
        throw typeof token === "string" ? new RangeError(`token: ${what}`) : new TypeError(`token: ${what}`);
      }
      this.current = token;
    }
  }
  /** Fetches the token for the next connection. Returns why that failed, or null. */
  async ask(withinMs) {
    if (this.#source === null) {
      return null;
    }
    try {
      const token = await inTime(this.#source(this.#refused), withinMs);
      const what = token === "" ? null : whatIsWrong(token);
      if (what !== null) {
        throw new TokenProblem(`the function's token ${what}`);
      }
      this.current = token;
    } catch (error) {
      this.failure = error;
      return lost(`no token: ${error instanceof TokenProblem ? error.message : nameOf(error)}`);
    }
    this.failure = void 0;
    if (this.current === this.#refused) {
      return unauthenticated(`${this.#said}; the token function returned the same token again`);
    }
    return null;
  }
  /**
   * Returns how a connection ended; expired if another token may help.
   *
   * @param ending by the server's account.
   * @param good whether the server had accepted the connection.
   */
  judge(ending, good) {
    if (good) {
      this.#refused = null;
      this.#refusals = 0;
    }
    if (ending.kind !== "refused" || ending.error.reason !== "UNAUTHENTICATED") {
      return ending;
    }
    this.#refusals += 1;
    this.#refused = this.current;
    this.#said = ending.error.message;
    if (this.#source !== null && this.#refusals === 1) {
      return { kind: "expired", why: `UNAUTHENTICATED: ${this.#said}` };
    }
    return unauthenticated(this.#said + this.#hint(good));
  }
  #hint(good) {
    if (this.#source !== null) {
      return "; the previous token was refused as well";
    }
    return this.current !== "" && good ? "; pass a function as token to renew it" : "";
  }
};
var TokenProblem = class extends Error {
};
async function inTime(token, withinMs) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      reject(new TokenProblem(`none within ${Math.round(withinMs)} ms`));
    }, withinMs);
  });
  try {
    return await Promise.race([token, late]);
  } finally {
    clearTimeout(timer);
  }
}
function whatIsWrong(token) {
  if (typeof token !== "string") {
    return `must be text, and is ${typeof token}`;
  }
  return TOKEN.test(token) ? null : "must be letters, digits and . _ ~ + - alone, without Bearer";
}
function unauthenticated(message) {
  return refused(serverError("UNAUTHENTICATED", message));
}
function nameOf(error) {
  return `the token function threw ${error instanceof Error ? error.name : typeof error}`;
}

// src/session/session.ts
var SESSION_SORTING = {
  isOutcome: (event) => event.type === "result" || event.type === "missing",
  bytesOf: (event) => event.type === "result" ? event.speech.length : 0,
  keyOf: (event) => event.type === "partial" ? event.index : null
};
var Session = class _Session {
  /** The format of all audio that is sent. */
  audioFormat;
  #protocol;
  #state;
  #channel;
  #sender;
  constructor(options) {
    const checked = checkOptions(options);
    const addresses = parseAddresses(options.addresses);
    this.audioFormat = checked.audioFormat;
    this.#protocol = new SessionProtocol({
      newSession: checked.newSession,
      random: Math.random,
      reconnectMs: checked.reconnectMs
    });
    this.#state = this.#protocol.state;
    this.#channel = new Channel({
      protocol: this.#protocol,
      addresses,
      token: new TokenSource(options.token),
      webSocket: checked.webSocket,
      encode: (frame) => frame.kind === "audio" ? audioFrame(frame.chunk) : JSON.stringify(frame.message),
      sorting: SESSION_SORTING
    });
    this.#sender = new Sender({
      state: this.#state,
      cutter: new Cutter(checked.audioFormat, checked.directions, checked.chunkMs),
      maxUnacknowledgedBytes: checked.maxUnacknowledgedBytes,
      checkWritable: () => {
        this.#checkWritable();
      },
      wake: () => {
        this.#channel.wake();
      },
      until: (condition) => this.#channel.until(condition)
    });
  }
  // ---- opening and closing ----
  /**
   * Opens a session.
   *
   * Throws RangeError or TypeError for wrong options; SessionRefusedError if the gateway refuses the
   * session and a retry cannot help; SessionUnavailableError if no gateway opened it in time.
   */
  static async open(options) {
    const session = new _Session(options);
    session.#channel.start();
    await session.#channel.until(() => session.#state.isKnown);
    return session;
  }
  /**
   * Ends the session. Returns when all results have arrived; they can still be read then. Throws
   * SessionLostError if the session was lost before its end.
   */
  async close() {
    await this.#sender.close();
  }
  /** Drops the session at once. What was not acknowledged or not received is lost. */
  abort() {
    this.#channel.abort("ABORTED", "the app left the session before its end");
  }
  // ---- sending ----
  /**
   * Sends audio that was recorded just now. Also works while there is no connection.
   *
   * Returns when the SDK has taken over the audio. It waits while more than
   * `maxUnacknowledgedBytes` are unacknowledged. Calls keep their order even without `await`, but
   * too many of them throw BufferFullError.
   *
   * Throws RangeError for wrong arguments (nothing was sent), SessionLostError if the session was
   * lost.
   */
  async send(audio, options = {}) {
    await this.#sender.send(audio, options);
  }
  /**
   * Ends the utterance: the speaker has finished. The same as `send` with `isFinal`, without audio.
   *
   * Audio that a microphone still delivers within the server's hangover (about 200 ms of audio)
   * joins the utterance. An app that sends on at once, for example from files, should await
   * `drained` in between.
   */
  async finish() {
    await this.#sender.finish();
  }
  /** The app is playing speech: until `playbackEnded`, silence is not a pause. */
  playbackStarted() {
    this.#setPlaying(true);
  }
  /** The app has stopped playing speech. */
  playbackEnded() {
    this.#setPlaying(false);
  }
  /**
   * Returns when the server has acknowledged all audio, so that the SDK keeps none. The server
   * acknowledges an utterance once it is cut and accepted, usually some time after `finish`.
   */
  async drained() {
    await this.#channel.until(() => this.#state.kept.unacknowledged === 0);
  }
  // ---- receiving ----
  /**
   * Everything that happens, in order, from the opening to the end of the session.
   *
   * An unread partial text is replaced by the next one of its utterance. Nothing else is dropped,
   * unless `results()` is read and this is not: then only the newest events are kept. Throws
   * SessionLostError after the last event of a session that was lost.
   */
  events() {
    return this.#channel.events();
  }
  /**
   * Results and missing utterances only: each index once, in order, to the session's end.
   *
   * They are kept until they are read, even if `events()`, which also has them, is read too. A
   * second iterator continues where the first stopped. Throws SessionLostError after the last
   * result of a session that was lost.
   */
  results() {
    return this.#channel.results();
  }
  // ---- properties ----
  /** The session's id for operators' tools. */
  get sessionId() {
    return this.#state.sessionId;
  }
  /** What the server allows. */
  get limits() {
    return this.#state.limits;
  }
  /** The W3C trace context of the session, for the app's own spans; or "". */
  get traceparent() {
    return this.#state.traceparent;
  }
  /** Whether the session is open at a gateway now. */
  get connected() {
    return this.#protocol.opened && !this.#channel.done;
  }
  /** Whether the session has ended, by `close` or because it was lost. */
  get ended() {
    return this.#channel.done;
  }
  /** The audio that no server has acknowledged. */
  get unacknowledged() {
    return { chunks: this.#state.kept.unacknowledged, bytes: this.#state.kept.bytes };
  }
  /** Totals of the session so far. */
  get counts() {
    return this.#state.counts;
  }
  // ---- the inside ----
  #setPlaying(playing) {
    if (!this.#channel.done && !this.#state.over) {
      this.#state.playing = playing;
      this.#channel.wake();
    }
  }
  #checkWritable() {
    this.#channel.checkFailure();
    if (this.#state.closing) {
      throw new SessionError("CLOSED", "the session is closed: nothing more can be sent");
    }
    if (this.#state.over) {
      throw this.#state.lost("CLOSED", "the server has closed the session");
    }
  }
};

// src/room/options.ts
var MAX_ROOM_NAME_CHARACTERS = 100;
var MAX_LANGUAGES = 64;
var MAX_MEMBERS_LIMIT = 1e6;
var MAX_SPEAKERS_LIMIT = 1e4;
var MAX_LANGUAGES_LIMIT = 1e3;
var DAY_S = 86400;
var MAX_LIFETIME_S = 30 * DAY_S;
var ROOM_TOKEN = /^[A-Za-z0-9._~+-]+$/;
function checkRoomToken(token) {
  if (typeof token !== "string" || !ROOM_TOKEN.test(token)) {
    throw new RangeError("token: must be the token of a room, as Room.create or joinToken gave it");
  }
  return checkText("token", token, MAX_ROOM_TOKEN_CHARACTERS);
}
function createRequest(options) {
  const { name = "", languages = [], speak = "invited", tenant = "" } = options;
  const { maxMembers = 0, maxSpeakers = 0, maxLanguages = 0 } = options;
  checkText("name", name, MAX_ROOM_NAME_CHARACTERS);
  if (languages.length > MAX_LANGUAGES) {
    throw new RangeError(
      `languages: has ${languages.length}; at most ${MAX_LANGUAGES} are allowed`
    );
  }
  languages.forEach((each, at) => checkLanguage(`languages[${at}]`, each));
  if (!["invited", "anyone"].includes(speak)) {
    throw new RangeError(`speak: ${speak} must be "invited" or "anyone"`);
  }
  checkNumber("maxMembers", maxMembers, 0, MAX_MEMBERS_LIMIT);
  checkNumber("maxSpeakers", maxSpeakers, 0, MAX_SPEAKERS_LIMIT);
  checkNumber("maxLanguages", maxLanguages, 0, MAX_LANGUAGES_LIMIT);
  if (tenant !== "") {
    checkId("tenant", tenant);
  }
  const limits = { maxMembers, maxSpeakers, maxLanguages };
  const policy = `SPEAK_POLICY_${speak.toUpperCase()}`;
  return { options: { name, languages: [...languages], speak: policy, ...limits }, tenant };
}
function checkListening(options) {
  const { captions = true, speech = false, originalAudio = false } = options;
  const language = checkLanguage("language", options.language);
  if (!captions && !speech && !originalAudio) {
    throw new RangeError("captions: one of captions, speech and originalAudio must be true");
  }
  return { language, captions, speech, originalAudio };
}
function checkListener(room, options) {
  const { name = "", status = false, reconnectMs } = options;
  checkText("name", name, MAX_NAME_CHARACTERS);
  if (reconnectMs !== void 0) {
    checkNumber("reconnectMs", reconnectMs, 0, 1e3 * DAY_S);
  }
  return {
    listening: checkListening(options),
    joining: { roomId: room.roomId, joinToken: room.token, name, status },
    reconnectMs: reconnectMs ?? null,
    webSocket: checkWebSocket(room.WebSocket)
  };
}

// src/room/protocol/chain.ts
var MAX_CHANGES = 64;
var Chain = class {
  /** Whether the listener has been in the room. */
  started = false;
  #liveFrom = 0;
  #seen = null;
  /** The first indexes of languages that were changed to, ascending, all above the position. */
  #changes = [];
  /** Whether the last connection broke during a change of language. */
  #isUnsure = false;
  /** Utterances below this one may be in the language that the listener does not ask for. */
  #unsureUntil = 0;
  /** The first room index that the listener has not seen, or is to get live. */
  get position() {
    return this.#seen ?? this.#liveFrom;
  }
  /** The listener is in the room. `liveFrom`, the first index that comes live, counts once. */
  join(liveFrom) {
    if (!this.started) {
      this.started = true;
      this.#liveFrom = liveFrom;
    }
    this.#changes = [];
    if (this.#isUnsure) {
      this.#isUnsure = false;
      this.#unsureUntil = liveFrom;
    }
  }
  /**
   * The connection has broken.
   *
   * @param isChanging whether a change of language was not answered.
   */
  break(isChanging) {
    this.#isUnsure ||= isChanging || this.#changes.length > 0;
  }
  /** Utterances from this index on come in another language. */
  change(index) {
    if (index > this.position) {
      const before = this.#changes.filter((each) => each < index);
      this.#changes = [...before.slice(-MAX_CHANGES), index];
    }
  }
  /** Whether everything below `until` has been seen. */
  isRepeat(until) {
    return this.#seen !== null && until <= this.#seen;
  }
  /**
   * Returns what the listener was not given before an utterance; null if nothing.
   *
   * @param previous the index of the one before it in its language; null: there is none.
   */
  lostBefore(index, previous) {
    const first = this.#firstDue(index);
    return previous === null || first === null || previous < first ? null : { first, until: previous + 1 };
  }
  /**
   * Returns what the listener may not have been given before an utterance, because it was published
   * in another language; null if nothing.
   */
  unsureBefore(index) {
    const first = this.position;
    const until = Math.min(index, this.#unsureUntil);
    return first < until ? { first, until } : null;
  }
  /** The lowest index that is due before this one; null: unknown, it is the first replay. */
  #firstDue(index) {
    if (this.#seen === null && index < this.#liveFrom) {
      return null;
    }
    return Math.max(this.position, ...this.#changes.filter((each) => each <= index));
  }
  /** Everything below `until` was given to the app. */
  advance(until) {
    this.#seen = until;
    this.#changes = this.#changes.filter((each) => each > until);
  }
};
function inWords2({ first, until }) {
  return until === first + 1 ? `utterance ${first}` : `utterances ${first} to ${until - 1}`;
}

// src/room/protocol/frames.ts
var HEADER_BYTES = 12;
var KINDS = /* @__PURE__ */ new Map([
  [3, "speech"],
  [4, "original"]
]);
function roomAudioOf(frame) {
  if (frame.byteLength < HEADER_BYTES) {
    return null;
  }
  const view = new DataView(frame);
  const isPadded = (view.getUint32(0) & 16777215) === 0;
  const kind = isPadded ? KINDS.get(view.getUint8(0)) : void 0;
  const roomIndex = Number(view.getBigUint64(4));
  return kind === void 0 || !Number.isSafeInteger(roomIndex) ? null : { kind, roomIndex, data: new Uint8Array(frame, HEADER_BYTES) };
}

// src/room/protocol/state.ts
var ListenerState = class {
  chain = new Chain();
  /** What the app wants to receive. */
  wanted;
  /** What the server has confirmed; also what the next connection asks for at first. */
  confirmed;
  /** Why the server refused the last change; null if it did not. */
  changeError = null;
  /** Empty until the listener is in the room. */
  memberId = "";
  /** As the server described it last; null until the listener is in the room. */
  room = null;
  /** Whether the app has left the room. */
  leaving = false;
  /** Whether the room was closed. */
  isRoomClosed = false;
  over = false;
  said = 0;
  notSaid = 0;
  repeated = 0;
  rejoins = 0;
  constructor(listening) {
    this.wanted = this.confirmed = listening;
  }
  get isKnown() {
    return this.chain.started;
  }
  get counts() {
    const { said, notSaid, repeated, rejoins } = this;
    return { said, notSaid, repeated, rejoins };
  }
  /** Whether the server has confirmed or refused what the app wants to receive. */
  get isSettled() {
    return isSame2(this.wanted, this.confirmed) || this.changeError !== null;
  }
  /** The app wants to receive something else. */
  change(listening) {
    this.wanted = listening;
    this.changeError = null;
  }
  /** The server refuses a change. */
  refuseChange(asked, error) {
    if (isSame2(this.wanted, asked)) {
      this.wanted = this.confirmed;
      this.changeError = error;
    }
  }
  /** A room that was closed meanwhile is left as one that is closed. */
  isDoneBy(reason) {
    return reason === "ROOM_CLOSED" && this.isKnown;
  }
  finish() {
    this.over = true;
  }
  refused({ reason, message, fieldViolations }) {
    return new RoomRefusedError(reason, message, fieldViolations);
  }
  unavailable(reason, message, retryAfterMs) {
    return new RoomUnavailableError(reason, message, retryAfterMs);
  }
  lost(reason, message) {
    return new ListenerLostError(reason, message, this.chain.position);
  }
};
function isSame2(one, other) {
  return one.language.toLowerCase() === other.language.toLowerCase() && one.captions === other.captions && one.speech === other.speech && one.originalAudio === other.originalAudio;
}

// src/room/protocol/stream.ts
var ListenerStream = class {
  constructor(connection) {
    this.connection = connection;
  }
  connection;
  /** The change that the gateway has not answered yet. */
  asked = null;
  /** Audio by room index. */
  speech = new EarlyAudio();
  original = new EarlyAudio();
  #leaveTaken = false;
  /** Returns the next message to write; null if there is none now. */
  take(state, joining) {
    const { connection } = this;
    if (!connection.openTaken) {
      connection.openTaken = true;
      return { join: this.#join(state, joining) };
    }
    if (!connection.opened) {
      return null;
    }
    if (state.leaving) {
      const isFirst = !this.#leaveTaken;
      this.#leaveTaken = true;
      return isFirst ? { leave: {} } : null;
    }
    if (connection.closing || this.asked !== null || state.isSettled) {
      return null;
    }
    this.asked = state.wanted;
    return { change: { listening: state.wanted } };
  }
  #join(state, joining) {
    const join = { ...joining, listening: state.confirmed };
    return this.connection.resumes ? { ...join, memberId: state.memberId, position: state.chain.position } : join;
  }
};

// src/room/protocol/wire.ts
var NO_AUDIO = new Uint8Array();
function roomEventsOf(frame) {
  return messageEvents(frame).map((event) => readFirst(event, READERS2) ?? { kind: "unknown" });
}
var READERS2 = {
  joined: (joined) => ({
    kind: "joined",
    memberId: textOf(joined, "memberId"),
    room: roomFrom(fieldsOf(joined, "room")),
    position: integerOf(joined, "position"),
    resumeWithinMs: integerOf(joined, "resumeWithinMs"),
    silenceMs: integerOf(joined, "silenceMs")
  }),
  result: (result) => heard(result, saidFrom(result)),
  missing: (missing) => heard(missing, notSaidFrom(missing)),
  changed: (changed) => ({
    kind: "changed",
    listening: listeningFrom(fieldsOf(changed, "listening")),
    position: integerOf(changed, "position")
  }),
  status: (status) => ({ kind: "status", attendance: attendanceFrom(status) }),
  goAway: goAwayFrom,
  error: (error) => ({ kind: "error", error: errorFrom(error) }),
  closed: () => ({ kind: "closed" })
};
function heard(fields, event) {
  return { kind: "heard", event, previous: optionalInteger(fields, "previousIndex") };
}
function spokenFrom(event) {
  return {
    roomIndex: integerOf(event, "roomIndex"),
    language: textOf(event, "language"),
    spokenLanguage: textOf(event, "spokenLanguage"),
    sessionId: textOf(event, "sessionId"),
    speaker: textOf(event, "speaker"),
    lost: integersOf(event, "lostIndexes"),
    replayed: event.replayed === true
  };
}
function saidFrom(result) {
  const spoken = spokenFrom(result);
  const { source, repaired, translated } = textsOf(result);
  const isOwn = spoken.language.toLowerCase() === spoken.spokenLanguage.toLowerCase();
  return {
    type: "said",
    ...spoken,
    kind: kindOf(result),
    texts: { source, repaired, translated },
    text: translated || (isOwn ? repaired || source : ""),
    speech: NO_AUDIO,
    speechFormat: formatOf(result, "speechFormat"),
    originalAudio: NO_AUDIO,
    originalFormat: formatOf(result, "originalFormat"),
    joined: integersOf(result, "joinedIndexes"),
    turnBroken: result.turnBroken === true,
    cutAtMs: integerOf(result, "cutAtMs"),
    audioMs: integerOf(result, "audioMs"),
    publishedMs: integerOf(result, "publishedMs")
  };
}
function notSaidFrom(missing) {
  const spoken = spokenFrom(missing);
  const { reason, message } = errorFrom(fieldsOf(missing, "why"));
  const untilIndex = Math.max(spoken.roomIndex + 1, integerOf(missing, "untilIndex"));
  return { type: "not-said", ...spoken, untilIndex, reason, message };
}
function roomFrom(room) {
  const options = fieldsOf(room, "options");
  return {
    roomId: textOf(room, "roomId"),
    tenant: textOf(room, "tenant"),
    name: textOf(options, "name"),
    allowedLanguages: textListOf(options, "languages"),
    speak: enumOf(options, "speak", "SPEAK_POLICY_") === "ANYONE" ? "anyone" : "invited",
    maxMembers: integerOf(options, "maxMembers"),
    maxSpeakers: integerOf(options, "maxSpeakers"),
    maxLanguages: integerOf(options, "maxLanguages"),
    createdMs: integerOf(room, "createdMs"),
    nextIndex: integerOf(room, "nextIndex"),
    ...attendanceFrom(room)
  };
}
function attendanceFrom(from) {
  return {
    listeners: integerOf(from, "listeners"),
    languages: messagesOf(from, "languages").map((each) => ({
      language: textOf(each, "language"),
      listeners: integerOf(each, "listeners"),
      speechListeners: integerOf(each, "speechListeners"),
      waiting: integerOf(each, "waiting"),
      oldestWaitingMs: integerOf(each, "oldestWaitingMs")
    })),
    speakers: messagesOf(from, "speakers").map((each) => ({
      sessionId: textOf(each, "sessionId"),
      name: textOf(each, "name"),
      language: textOf(each, "language"),
      joinedMs: integerOf(each, "joinedMs")
    }))
  };
}
function memberFrom(member) {
  const role = enumOf(member, "role", "ROOM_ROLE_") === "SPEAKER" ? "speaker" : "listener";
  return {
    name: textOf(member, "name"),
    role,
    language: textOf(member, "language"),
    listening: role === "speaker" ? null : listeningFrom(fieldsOf(member, "listening")),
    joinedMs: integerOf(member, "joinedMs")
  };
}
function listeningFrom(listening) {
  return {
    language: textOf(listening, "language"),
    captions: listening.captions === true,
    speech: listening.speech === true,
    originalAudio: listening.originalAudio === true
  };
}

// src/room/protocol/machine.ts
var REJOIN_MS = 3e5;
var MAX_INDEX = 2 ** 53 - 1;
var OF_THE_GATEWAY = /* @__PURE__ */ new Set(["DRAINING", "BACKPRESSURE", "ROOM_CLOSED"]);
var ListenerProtocol = class {
  /** The facts that outlive a connection. The app's side calls `state.change`. */
  state;
  #joining;
  #connections;
  #stream = null;
  /** The position at which the server last skipped something. */
  #skippedAt = null;
  constructor({ joining, listening, random, reconnectMs }) {
    this.state = new ListenerState(listening);
    this.#joining = joining;
    this.#connections = new Connections({ subject: this.state, random, reconnectMs });
  }
  // ---- queries of the shell ----
  /** Whether the listener is in the room on the current connection. */
  get opened() {
    return this.#connections.opened;
  }
  /** Returns when to call `onTimer`; null if nothing is due. */
  nextDeadline() {
    return this.#connections.live?.nextDeadline() ?? null;
  }
  /** Returns why the connection ended, by its close code and the gateway's events. */
  ending(now2, code, said) {
    return this.#connections.ending(now2, code, said);
  }
  /** Returns the next message to write; null if there is none now. */
  take() {
    return this.#stream?.take(this.state, this.#joining) ?? null;
  }
  // ---- the app ----
  /** The app leaves the room. */
  leave() {
    if (!this.state.over) {
      this.state.leaving = true;
      this.#connections.finish();
      this.#connections.end({ kind: "left" }, this.opened);
    }
    return this.#connections.out();
  }
  // ---- the connection ----
  /** A connection is about to be opened. Returns the deadline for that. */
  onConnecting(now2) {
    return this.#connections.onConnecting(now2);
  }
  /** A new connection is open; its first message is JoinRoom. */
  onConnected(now2) {
    this.#stream = new ListenerStream(this.#connections.onConnected(now2));
  }
  /** A text frame has arrived. One without events only shows that the gateway is alive. */
  onText(now2, frame) {
    this.#connections.onText(frame, roomEventsOf, (_, event) => {
      if (this.#stream !== null) {
        this.#onEvent(now2, this.#stream, event);
      }
    });
    return this.#connections.out();
  }
  /** A binary frame has arrived: audio of a result that follows. */
  onBinary(frame) {
    this.#connections.hear();
    const audio = roomAudioOf(frame);
    if (audio !== null && this.#connections.live?.opened === true) {
      if (this.#stream?.[audio.kind].put(audio.roomIndex, audio.data) === false) {
        this.#fault("sent too much audio before its results");
      }
    }
    return this.#connections.out();
  }
  #onEvent(now2, stream, event) {
    switch (event.kind) {
      case "joined":
        this.#onJoined(now2, stream, event);
        break;
      case "heard":
        this.#onHeard(stream, event.event, event.previous);
        break;
      case "changed":
        this.#onChanged(stream, event.listening, event.position);
        break;
      case "status":
        this.#connections.do({ do: "give", event: { type: "status", ...event.attendance } });
        break;
      case "goAway":
        this.#connections.onGoAway(now2, event);
        break;
      case "error":
        this.#onError(stream, event.error);
        break;
      case "closed":
        this.#giveClosed();
        this.#connections.finish();
        this.#connections.end({ kind: "left" }, true);
        break;
      case "unknown":
        break;
    }
  }
  #onJoined(now2, stream, joined) {
    if (stream.connection.opened) {
      return;
    }
    if (joined.memberId === "") {
      this.#fault("let the listener in without a memberId");
      return;
    }
    const { state } = this;
    const { silenceMs } = joined;
    const resumeWithinMs = Math.max(REJOIN_MS, joined.resumeWithinMs);
    const awayMs = this.#connections.onOpened(now2, { silenceMs, resumeWithinMs });
    state.memberId = joined.memberId;
    state.room = joined.room;
    state.chain.join(joined.position);
    if (stream.connection.resumes) {
      state.rejoins += 1;
      const { position } = state.chain;
      this.#connections.do({ do: "give", event: { type: "rejoined", awayMs, position } });
    }
  }
  // ---- what is said ----
  #onHeard(stream, heard2, previous) {
    const { chain } = this.state;
    const whole = withAudio(stream, heard2);
    const until = untilOf(heard2);
    if (until > MAX_INDEX || (previous ?? -1) >= heard2.roomIndex) {
      this.#fault(`sent the room index ${heard2.roomIndex} after ${previous ?? "nothing"}`);
      return;
    }
    if (chain.isRepeat(until)) {
      this.state.repeated += 1;
      return;
    }
    const skipped = chain.lostBefore(heard2.roomIndex, previous);
    if (skipped !== null && this.#skippedAt !== chain.position) {
      this.#skippedAt = chain.position;
      this.#connections.leave("OUT_OF_ORDER", `skipped ${inWords2(skipped)} of the room`);
      return;
    }
    const unsure = chain.unsureBefore(heard2.roomIndex);
    if (skipped !== null) {
      this.#report(skipped, heard2.language, "OUT_OF_ORDER", "the server skipped it twice");
    } else if (unsure !== null) {
      const what = "the connection broke during a change of language";
      this.#report(unsure, heard2.language, "LISTENING_CHANGED", what);
    }
    this.#give(
      chain.isRepeat(heard2.roomIndex + 1) ? { ...whole, roomIndex: chain.position } : whole
    );
  }
  /** Tells the app that it does not get some utterances. */
  #report({ first, until }, language, reason, message) {
    const nobody = { spokenLanguage: "", sessionId: "", speaker: "" };
    const details = { language, reason, message, lost: [], replayed: false };
    const range = { roomIndex: first, untilIndex: until };
    this.#give({ type: "not-said", ...range, ...nobody, ...details });
  }
  #give(heard2) {
    const { state } = this;
    const until = untilOf(heard2);
    this.#connections.progress();
    if (heard2.type === "said") {
      state.said += 1;
    } else {
      state.notSaid += until - heard2.roomIndex;
    }
    state.chain.advance(until);
    this.#connections.do({ do: "give", event: heard2 });
  }
  #onChanged(stream, listening, position) {
    if (stream.asked !== null) {
      this.state.confirmed = stream.asked;
      stream.asked = null;
    }
    this.state.chain.change(position);
    this.#connections.do({ do: "give", event: { type: "changed", listening, position } });
  }
  #onError(stream, error) {
    const { connection } = stream;
    connection.lastError = error;
    if (!connection.opened) {
      this.#connections.end(refused(error));
      return;
    }
    if (stream.asked !== null && !OF_THE_GATEWAY.has(error.reason)) {
      connection.lastError = null;
      this.state.refuseChange(stream.asked, error);
      stream.asked = null;
    }
    this.#connections.do({ do: "give", event: problemFrom(error) });
  }
  #fault(what) {
    this.#connections.fault("INVALID_MESSAGE", what);
  }
  /** The time of `nextDeadline` has come. */
  onTimer(now2) {
    this.#connections.onTimer(now2);
    return this.#connections.out();
  }
  /** The connection has ended, or could not be opened. The position stays. */
  onDisconnected(now2, ending) {
    const { state } = this;
    if (this.opened) {
      state.chain.break(this.#stream?.asked !== null);
    }
    this.#stream = null;
    const wasOver = state.over;
    this.#connections.onDisconnected(now2, ending);
    const effects = this.#connections.out();
    if (!wasOver && effects.some((effect) => effect.do === "over")) {
      this.#giveClosed();
    }
    return [...this.#connections.out(), ...effects];
  }
  #giveClosed() {
    this.state.isRoomClosed = true;
    this.#connections.do({ do: "give", event: { type: "closed" } });
  }
};
function untilOf(heard2) {
  return heard2.type === "said" ? heard2.roomIndex + 1 : heard2.untilIndex;
}
function withAudio(stream, heard2) {
  const speech = stream.speech.take(heard2.roomIndex);
  const originalAudio = stream.original.take(heard2.roomIndex);
  return heard2.type === "not-said" ? heard2 : {
    ...heard2,
    ...speech === void 0 ? {} : { speech },
    ...originalAudio === void 0 ? {} : { originalAudio }
  };
}

// src/room/listener.ts
var SORTING = {
  isOutcome: (event) => event.type === "said" || event.type === "not-said",
  bytesOf: (event) => event.type === "said" ? event.speech.length + event.originalAudio.length : 0,
  // Only the newest status matters.
  keyOf: (event) => event.type === "status" ? 0 : null
};
var Listener = class _Listener {
  #protocol;
  #state;
  #channel;
  constructor(room, options) {
    const checked = checkListener(room, options);
    this.#protocol = new ListenerProtocol({ ...checked, random: Math.random });
    this.#state = this.#protocol.state;
    this.#channel = new Channel({
      protocol: this.#protocol,
      addresses: parseOrigins(room.url).map(
        (origin) => `${origin.replace(/^http/, "ws")}/v1/listen`
      ),
      token: new TokenSource(room.token),
      webSocket: checked.webSocket,
      encode: (message) => JSON.stringify(message),
      sorting: SORTING
    });
  }
  /** Joins a room: see `Room.listen`. */
  static async join(room, options) {
    const listener = new _Listener(room, options);
    listener.#channel.start();
    await listener.#channel.until(() => listener.#state.isKnown);
    return listener;
  }
  // ---- receiving ----
  /**
   * Everything that happens, in order, to the end. An unread status is replaced by the next one;
   * nothing else is dropped, unless `results()` is read and this is not: then only the newest events
   * are kept. Throws ListenerLostError after the last event of a listener that was lost.
   */
  events() {
    return this.#channel.events();
  }
  /**
   * What was said and not said only: each utterance once, in order, until the listener leaves or the
   * room is closed. They are kept until they are read, even if `events()`, which also has them, is
   * read too. Throws ListenerLostError after the last one of a listener that was lost.
   */
  results() {
    return this.#channel.results();
  }
  // ---- changing and leaving ----
  /**
   * Receives something else, from the next utterance on; what is not named stays as it is. Returns
   * when the server has confirmed it, or when a later change replaces it.
   *
   * Throws RoomRefusedError if the server refuses the change: then everything stays as it was.
   */
  async change(options) {
    const state = this.#state;
    this.#channel.checkFailure();
    const wanted = checkListening({ ...state.wanted, ...options });
    state.change(wanted);
    this.#channel.wake();
    const isReplaced = () => state.changeError === null && !isSame2(state.wanted, wanted);
    await this.#channel.until(() => state.isSettled || isReplaced());
    const error = state.changeError;
    if (error !== null) {
      throw new RoomRefusedError(error.reason, error.message, error.fieldViolations);
    }
  }
  /** Leaves the room. What has arrived can still be read. */
  async leave() {
    if (!this.#channel.done) {
      const isConnected = this.#protocol.opened;
      this.#channel.carryOut(this.#protocol.leave());
      if (!isConnected) {
        this.#channel.stop();
      }
    }
    await this.#channel.until(() => false);
  }
  /** Drops the connection at once. The room notices that later than if the listener leaves. */
  abort() {
    this.#channel.abort("ABORTED", "the app dropped the listener");
  }
  // ---- properties ----
  /** The room as it was when the listener last joined it. */
  get room() {
    return this.#state.room;
  }
  /** What it receives. */
  get listening() {
    return this.#state.confirmed;
  }
  /** The first room index that it has not seen, or gets live. */
  get position() {
    return this.#state.chain.position;
  }
  /** Its id among the members of the room. */
  get memberId() {
    return this.#state.memberId;
  }
  /** Whether it is connected to a gateway now. */
  get connected() {
    return this.#protocol.opened && !this.#channel.done;
  }
  /** Whether it has left, the room was closed, or it was lost. */
  get ended() {
    return this.#channel.done;
  }
  /** Whether the room was closed. */
  get roomClosed() {
    return this.#state.isRoomClosed;
  }
  /** Totals so far. */
  get counts() {
    return this.#state.counts;
  }
};

// src/room/calls.ts
var ANSWER_MS2 = 1e4;
async function callRoom(origins, call, token, body, read) {
  let failure = null;
  for (const origin of origins) {
    const url = new URL(`/v1/rooms/${call}`, origin);
    const signal = AbortSignal.timeout(ANSWER_MS2);
    const answer = await request(url, { token, body, signal }, read);
    switch (answer.kind) {
      case "answered":
        return answer.value;
      case "refused": {
        const { reason, message, fieldViolations } = answer.error;
        throw new RoomRefusedError(reason, message, fieldViolations);
      }
      case "unavailable": {
        const { reason, message, retryAfterMs } = answer.error;
        failure = new RoomUnavailableError(reason, message, retryAfterMs);
        break;
      }
      case "unreachable": {
        const { message, cause } = answer;
        failure ??= new RoomUnavailableError("UNREACHABLE", message, 0, { cause });
        break;
      }
    }
  }
  throw failure ?? new RangeError("url: must name at least one gateway");
}

// src/room/room.ts
var PAGE_SIZE = 500;
var MAX_PAGES = 1e4;
var Room = class _Room {
  roomId;
  /** The host's token, or a join token. */
  token;
  #options;
  #origins;
  constructor(options) {
    checkId("roomId", options.roomId);
    this.roomId = options.roomId;
    this.token = checkRoomToken(options.token);
    this.#options = options;
    this.#origins = parseOrigins(options.url);
  }
  /** Makes a room. Its `token` is the host's, with which it can also be closed. */
  static async create(options) {
    const { url, token = "", WebSocket } = options;
    const made = (answer) => {
      const { roomId } = roomFrom(fieldsOf(answer, "room"));
      const host = { url, roomId, token: textOf(answer, "hostToken") };
      return new _Room(WebSocket === void 0 ? host : { ...host, WebSocket });
    };
    return callRoom(parseOrigins(url), "create", token, createRequest(options), made);
  }
  /** Makes a token with which others can join. Only the host can. */
  async joinToken({ role, lifetimeS = 0 }) {
    if (!["listener", "speaker"].includes(role)) {
      throw new RangeError(`role: ${role} must be "listener" or "speaker"`);
    }
    checkNumber("lifetimeS", lifetimeS, 0, MAX_LIFETIME_S);
    const asked = { role: `ROOM_ROLE_${role.toUpperCase()}`, lifetimeS: Math.floor(lifetimeS) };
    return this.#call("token", { hostToken: this.token, ...asked }, (answer) => ({
      token: checkRoomToken(textOf(answer, "joinToken")),
      expiresMs: integerOf(answer, "expiresMs")
    }));
  }
  /** Returns the room as it is now. */
  async get() {
    return this.#call("get", { token: this.token }, (answer) => roomFrom(fieldsOf(answer, "room")));
  }
  /** Yields the members of the room. Only the host and speakers can ask for them. */
  async *members() {
    let pageToken = "";
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const asked = { token: this.token, pageSize: PAGE_SIZE, pageToken };
      const { members, next } = await this.#call("members", asked, (answer) => ({
        members: messagesOf(answer, "members").map(memberFrom),
        next: textOf(answer, "nextPageToken")
      }));
      yield* members;
      if (next === "") {
        return;
      }
      pageToken = next;
    }
  }
  /** Ends the room for all members. Only the host can. Repeating it is no error. */
  async close() {
    await this.#call("close", { hostToken: this.token }, () => void 0);
  }
  /**
   * Speaks to the room: opens a session whose results have a receipt, `room`, instead of texts. It
   * comes when all languages that somebody listens to have an outcome.
   *
   * Throws as `Session.open` does.
   */
  async speak({ language, name = "", ...options }) {
    const { roomId, token } = this;
    const { WebSocket } = this.#options;
    return Session.open({
      ...options,
      ...WebSocket === void 0 ? {} : { WebSocket },
      addresses: this.#origins,
      languages: { roomId, joinToken: token, language, name },
      token
    });
  }
  /**
   * Listens to the room. Returns when the listener is in it.
   *
   * Throws RangeError or TypeError for wrong options.
   */
  async listen(options) {
    return Listener.join(this.#options, options);
  }
  #call(call, body, read) {
    return callRoom(this.#origins, call, this.token, { roomId: this.roomId, ...body }, read);
  }
};

// src/audio-context.ts
var START_MS = 2e3;
async function starts(context, stopped) {
  if (context.state === "running") {
    return true;
  }
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(() => {
      resolve(false);
    }, START_MS);
    void stopped?.then(() => {
      resolve(false);
    });
  });
  const resumed = context.resume().then(
    () => true,
    () => false
  );
  try {
    return await Promise.race([resumed, late]);
  } finally {
    clearTimeout(timer);
  }
}
function restart(context) {
  if (context.state !== "running" && context.state !== "closed") {
    context.resume().catch(() => void 0);
  }
}

// src/microphone/voice-activity.ts
var FRAME_MS = 20;
var NOISE_MS = 3e3;
var FLOOR_DB = -90;
var HIGH_PASS_HZ = 120;
var VoiceActivity = class {
  #frameSamples;
  #aboveNoiseDb;
  #leastDb;
  #onsetFrames;
  #hangoverFrames;
  #highPass;
  /** The levels of the last NOISE_MS. */
  #levels = [];
  #speaking = false;
  #loudFrames = 0;
  #quietFrames = 0;
  /** The current frame. */
  #energy = 0;
  #filled = 0;
  #lastIn = 0;
  #lastOut = 0;
  #smoothDb = FLOOR_DB;
  constructor(sampleRateHz, options = {}) {
    this.#frameSamples = Math.round(sampleRateHz * FRAME_MS / 1e3);
    this.#aboveNoiseDb = options.aboveNoiseDb ?? 9;
    this.#leastDb = options.leastDb ?? -55;
    this.#onsetFrames = Math.max(1, Math.round((options.onsetMs ?? 60) / FRAME_MS));
    this.#hangoverFrames = Math.max(1, Math.round((options.hangoverMs ?? 600) / FRAME_MS));
    this.#highPass = 1 / (1 + 2 * Math.PI * HIGH_PASS_HZ / sampleRateHz);
  }
  /** Whether somebody speaks. */
  get speaking() {
    return this.#speaking;
  }
  /** The level of the last frame, in decibels of full scale, for meters. */
  get levelDb() {
    return this.#levels.at(-1) ?? FLOOR_DB;
  }
  /** The noise of the room, in decibels of full scale. */
  get noiseDb() {
    return Math.max(FLOOR_DB, Math.min(...this.#levels, 0));
  }
  /** Takes a block of any size. Returns whether somebody speaks at its end. */
  push(samples) {
    for (const sample of samples) {
      const value = sample / 32768;
      this.#lastOut = this.#highPass * (this.#lastOut + value - this.#lastIn);
      this.#lastIn = value;
      this.#energy += this.#lastOut * this.#lastOut;
      this.#filled += 1;
      if (this.#filled === this.#frameSamples) {
        this.#onFrame(this.#energy / this.#filled);
        this.#energy = this.#filled = 0;
      }
    }
    return this.#speaking;
  }
  #onFrame(power) {
    const level = Math.max(FLOOR_DB, 10 * Math.log10(power + 1e-12));
    this.#smoothDb = Math.max(FLOOR_DB, 0.6 * this.#smoothDb + 0.4 * level);
    const noise = this.#levels.length === 0 ? FLOOR_DB : this.noiseDb;
    this.#levels.push(Math.max(level, this.#smoothDb));
    if (this.#levels.length > NOISE_MS / FRAME_MS) {
      this.#levels.shift();
    }
    const isLoud = level > Math.max(this.#leastDb, noise + this.#aboveNoiseDb);
    this.#loudFrames = isLoud ? this.#loudFrames + 1 : 0;
    this.#quietFrames = isLoud ? 0 : this.#quietFrames + 1;
    if (!this.#speaking) {
      this.#speaking = this.#loudFrames >= this.#onsetFrames;
    } else if (this.#quietFrames >= this.#hangoverFrames) {
      this.#speaking = false;
    }
  }
};

// src/microphone/segmenter.ts
var Segmenter = class {
  #voice;
  #preRollSamples;
  #recent = [];
  #recentSamples = 0;
  #at = 0;
  #speaking = false;
  constructor(sampleRateHz, preRollMs, options = {}) {
    this.#voice = new VoiceActivity(sampleRateHz, options);
    this.#preRollSamples = Math.round(sampleRateHz * preRollMs / 1e3);
  }
  get speaking() {
    return this.#speaking;
  }
  /** Takes a block. Returns the piece of speech that it completes; null if nobody speaks. */
  push(samples) {
    this.#at += samples.length;
    const wasSpeaking = this.#speaking;
    this.#speaking = this.#voice.push(samples);
    if (!wasSpeaking) {
      this.#keep(samples);
      return this.#speaking ? this.#piece(this.#takeRecent(), false) : null;
    }
    return this.#piece(samples, !this.#speaking);
  }
  /** Ends the stream. Returns an empty piece if somebody was speaking. */
  flush() {
    const wasSpeaking = this.#speaking;
    this.#speaking = false;
    this.#takeRecent();
    return wasSpeaking ? this.#piece(new Int16Array(), true) : null;
  }
  #piece(samples, isFinal) {
    return { samples, end: this.#at, isFinal };
  }
  #keep(samples) {
    this.#recent.push(samples);
    this.#recentSamples += samples.length;
    let [oldest] = this.#recent;
    while (oldest !== void 0 && this.#recentSamples - oldest.length >= this.#preRollSamples) {
      this.#recentSamples -= oldest.length;
      this.#recent.shift();
      [oldest] = this.#recent;
    }
  }
  #takeRecent() {
    const all = new Int16Array(this.#recentSamples);
    let at = 0;
    for (const block of this.#recent) {
      all.set(block, at);
      at += block.length;
    }
    this.#recent = [];
    this.#recentSamples = 0;
    return all;
  }
};

// src/microphone/recording.ts
var PRE_ROLL_MS = 300;
var MAX_UNREAD_MS = 6e4;
var Recording = class {
  #rateHz;
  #segmenter;
  #onEnd;
  #blocks = [];
  #unreadSamples = 0;
  #ended = false;
  #error = null;
  #wake = () => void 0;
  /** For the SDK: apps get recordings from `Microphone.record`. */
  constructor(rateHz, { voiceActivity = false, preRollMs = PRE_ROLL_MS }, onEnd) {
    this.#rateHz = rateHz;
    this.#onEnd = onEnd;
    const detection = typeof voiceActivity === "object" ? voiceActivity : {};
    this.#segmenter = voiceActivity === false ? null : new Segmenter(rateHz, preRollMs, detection);
  }
  /** Whether somebody speaks now. Without voice activity: whether it records. */
  get speaking() {
    return !this.#ended && (this.#segmenter?.speaking ?? true);
  }
  /** Ends the recording. What was recorded until now can still be read. */
  stop() {
    if (!this.#ended) {
      const last = this.#segmenter?.flush() ?? null;
      if (last !== null) {
        this.#put({ samples: last.samples, recordedAt: Date.now(), isFinal: true });
      }
      this.#end(null);
    }
  }
  /** For the microphone: takes samples whose end was recorded at this time. */
  put(samples, recordedAt) {
    if (this.#ended || samples.length === 0) {
      return;
    }
    if (this.#segmenter === null) {
      this.#put({ samples, recordedAt, isFinal: false });
      return;
    }
    const piece = this.#segmenter.push(samples);
    if (piece !== null) {
      this.#put({ samples: piece.samples, recordedAt, isFinal: piece.isFinal });
    }
  }
  /** For the microphone: it cannot record any more. */
  fail(error) {
    this.#end(error);
  }
  [Symbol.asyncIterator]() {
    return {
      next: () => this.#next(),
      return: () => {
        this.stop();
        return Promise.resolve({ done: true, value: void 0 });
      }
    };
  }
  async #next() {
    for (; ; ) {
      const block = this.#blocks.shift();
      if (block !== void 0) {
        this.#unreadSamples -= block.samples.length;
        return { done: false, value: block };
      }
      if (this.#error !== null) {
        throw this.#error;
      }
      if (this.#ended) {
        return { done: true, value: void 0 };
      }
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }
  #put(block) {
    this.#blocks.push(block);
    this.#unreadSamples += block.samples.length;
    if (this.#unreadSamples > this.#rateHz * MAX_UNREAD_MS / 1e3) {
      const what = `the recording was not read for ${MAX_UNREAD_MS / 1e3} s`;
      this.#end(new MicrophoneError("NOT_READ", what));
    }
    this.#wake();
  }
  #end(error) {
    if (!this.#ended) {
      this.#ended = true;
      this.#error = error;
      this.#onEnd(this);
      this.#wake();
    }
  }
};

// src/microphone/resampler.ts
var STOPBAND_DB = 80;
var PASSBAND = 0.875;
var Resampler = class {
  #up;
  #down;
  /** Samples before and after the centre of the filter. */
  #half;
  #cutoff;
  /** Coefficients by phase. They are computed when a phase occurs for the first time. */
  #phases = /* @__PURE__ */ new Map();
  #history;
  /** The input index of the first sample in `#history`. */
  #historyAt = 0;
  #inputs = 0;
  #outputs = 0;
  constructor(inputRateHz, outputRateHz) {
    checkRate("inputRateHz", inputRateHz);
    checkRate("outputRateHz", outputRateHz);
    const divisor = greatestCommonDivisor(inputRateHz, outputRateHz);
    this.#up = outputRateHz / divisor;
    this.#down = inputRateHz / divisor;
    const nyquist = Math.min(inputRateHz, outputRateHz) / 2 / inputRateHz;
    const transition = nyquist * (1 - PASSBAND);
    this.#cutoff = nyquist - transition / 2;
    const taps = (STOPBAND_DB - 8) / (2.285 * 2 * Math.PI * transition);
    this.#half = Math.ceil(taps / 2);
    this.#history = new Float32Array(this.#half);
    this.#historyAt = -this.#half;
  }
  /** The delay between input and output: how much later audio is needed for a sample. */
  get delaySamples() {
    return this.#half;
  }
  /** Returns the samples that this block completes. */
  push(block) {
    if (this.#up === this.#down) {
      return block.slice();
    }
    this.#remember(block);
    this.#inputs += block.length;
    return this.#compute(this.#inputs - this.#half);
  }
  /** Ends the stream, as if silence followed. Returns the last samples. The next one starts anew. */
  flush() {
    if (this.#up === this.#down) {
      return new Float32Array();
    }
    this.#remember(new Float32Array(this.#half));
    const rest = this.#compute(this.#inputs);
    this.#history = new Float32Array(this.#half);
    this.#historyAt = -this.#half;
    this.#inputs = this.#outputs = 0;
    return rest;
  }
  /** Computes all outputs whose time is before this input index. */
  #compute(end) {
    const until = Math.max(this.#outputs, Math.ceil(end * this.#up / this.#down));
    const out = new Float32Array(until - this.#outputs);
    for (let at = 0; at < out.length; at += 1) {
      out[at] = this.#sample(this.#outputs + at);
    }
    this.#outputs = until;
    this.#forget();
    return out;
  }
  #sample(output) {
    const position = output * this.#down;
    const centre = Math.floor(position / this.#up);
    const coefficients = this.#phase(position % this.#up);
    const first = centre - this.#half + 1 - this.#historyAt;
    const history = this.#history;
    let sum = 0;
    for (let at = 0; at < coefficients.length; at += 1) {
      sum += (coefficients[at] ?? 0) * (history[first + at] ?? 0);
    }
    return sum;
  }
  /** Returns the coefficients for outputs this many (1/up) input samples after an input. */
  #phase(phase) {
    let coefficients = this.#phases.get(phase);
    if (coefficients === void 0) {
      coefficients = this.#design(phase / this.#up);
      this.#phases.set(phase, coefficients);
    }
    return coefficients;
  }
  #design(offset) {
    const half = this.#half;
    const coefficients = new Float64Array(2 * half);
    let sum = 0;
    for (let at = 0; at < coefficients.length; at += 1) {
      const distance = at - (half - 1) - offset;
      const value = sinc(2 * this.#cutoff * distance) * kaiser(distance / half);
      coefficients[at] = value;
      sum += value;
    }
    return coefficients.map((value) => value / sum);
  }
  #remember(block) {
    const joined = new Float32Array(this.#history.length + block.length);
    joined.set(this.#history);
    joined.set(block, this.#history.length);
    this.#history = joined;
  }
  /** Drops what no later output needs. */
  #forget() {
    const next = Math.floor(this.#outputs * this.#down / this.#up) - this.#half + 1;
    const unneeded = Math.min(next - this.#historyAt, this.#history.length);
    if (unneeded > 0) {
      this.#history = this.#history.slice(unneeded);
      this.#historyAt += unneeded;
    }
  }
};
function toInt16(samples) {
  const out = new Int16Array(samples.length);
  for (let at = 0; at < samples.length; at += 1) {
    out[at] = Math.max(-32768, Math.min(32767, Math.round((samples[at] ?? 0) * 32768)));
  }
  return out;
}
var BETA = 0.1102 * (STOPBAND_DB - 8.7);
var BESSEL_BETA = besselI0(BETA);
function kaiser(x) {
  return Math.abs(x) > 1 ? 0 : besselI0(BETA * Math.sqrt(1 - x * x)) / BESSEL_BETA;
}
function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}
function besselI0(x) {
  let sum = 1;
  let term = 1;
  for (let k = 1; term > sum * 1e-12; k += 1) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}
function greatestCommonDivisor(a, b) {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
function checkRate(name, rate) {
  if (!Number.isInteger(rate) || rate < 1e3 || rate > 768e3) {
    throw new RangeError(`${name}: ${rate} must be an integer from 1000 to 768000`);
  }
}

// src/microphone/microphone.ts
var SPEECH_RATE_HZ = 16e3;
var MAX_RATE_HZ = 48e3;
var REASONS = {
  NotAllowedError: ["NO_PERMISSION", "access to the microphone was denied"],
  SecurityError: ["NO_PERMISSION", "the page's policy forbids the use of the microphone"],
  NotFoundError: ["NO_DEVICE", "there is no microphone"],
  OverconstrainedError: ["NO_DEVICE", "no microphone is as the constraints want it"],
  NotReadableError: [
    "DEVICE_BUSY",
    "the microphone is in use, or the system does not give it away"
  ],
  AbortError: ["DEVICE_BUSY", "the microphone could not be started"]
};
var Microphone = class _Microphone {
  /** The format of what is recorded, for `Session.open`. */
  format;
  /** The rate at which the device records. */
  deviceRateHz;
  #context;
  #ownsContext;
  #stream;
  #source;
  #worklet;
  #resampler;
  #recordings = /* @__PURE__ */ new Set();
  #closed = false;
  #level = 0;
  constructor(context, stream, options) {
    this.#context = context;
    this.#ownsContext = options.context === void 0;
    this.#stream = stream;
    this.deviceRateHz = Math.round(context.sampleRate);
    const wanted = options.sampleRateHz ?? SPEECH_RATE_HZ;
    const sampleRateHz = wanted === "device" ? Math.min(this.deviceRateHz, MAX_RATE_HZ) : wanted;
    this.format = { encoding: "PCM_S16LE", sampleRateHz, channels: 1 };
    this.#resampler = new Resampler(this.deviceRateHz, sampleRateHz);
    this.#source = context.createMediaStreamSource(stream);
    this.#worklet = new AudioWorkletNode(context, "lingua-recorder", {
      numberOfInputs: 1,
      numberOfOutputs: 0,
      channelCount: 1,
      channelCountMode: "explicit"
    });
    this.#worklet.port.onmessage = (event) => {
      this.#onBlock(event.data);
    };
    this.#source.connect(this.#worklet);
    for (const track of stream.getAudioTracks()) {
      track.onended = () => {
        const what = "the microphone was unplugged, or access to it was withdrawn";
        this.#lose(new MicrophoneError("DEVICE_LOST", what));
      };
    }
    context.addEventListener("statechange", this.#onStateChange);
  }
  /** iOS suspends the context during a phone call. */
  #onStateChange = () => {
    restart(this.#context);
  };
  /**
   * Turns the microphone on. Call it in the handler of a tap: iOS requires that.
   *
   * Throws MicrophoneError, whose `reason` says what is wrong.
   */
  static async open(options = {}) {
    checkBrowser();
    const context = options.context ?? new AudioContext();
    let stream = null;
    try {
      restart(context);
      stream = await request2(options);
      await loadWorklet(context, options.workletUrl);
      if (!await starts(context)) {
        const what = "the browser records only after a tap: call open() in its handler";
        throw new MicrophoneError("BLOCKED", what);
      }
      return new _Microphone(context, stream, options);
    } catch (error) {
      stream?.getTracks().forEach((track) => {
        track.stop();
      });
      if (options.context === void 0) {
        await context.close().catch(() => void 0);
      }
      throw error;
    }
  }
  /** Starts a recording. */
  record(options = {}) {
    if (this.#closed) {
      throw new MicrophoneError("DEVICE_LOST", "the microphone is closed");
    }
    const recording = new Recording(this.format.sampleRateHz, options, (ended) => {
      this.#recordings.delete(ended);
    });
    this.#recordings.add(recording);
    return recording;
  }
  /** How loud it is, from 0 to 1, for meters. */
  get level() {
    return this.#level;
  }
  /** Turns the microphone off, and ends all recordings. */
  async close() {
    if (this.#closed) {
      return;
    }
    this.#release();
    for (const recording of [...this.#recordings]) {
      recording.stop();
    }
    if (this.#ownsContext) {
      await this.#context.close();
    }
  }
  #release() {
    this.#closed = true;
    this.#context.removeEventListener("statechange", this.#onStateChange);
    this.#worklet.port.postMessage("stop");
    this.#worklet.port.onmessage = null;
    this.#source.disconnect();
    for (const track of this.#stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
  }
  #lose(error) {
    this.#release();
    for (const recording of [...this.#recordings]) {
      recording.fail(error);
    }
    if (this.#ownsContext) {
      this.#context.close().catch(() => void 0);
    }
  }
  #onBlock(block) {
    const samples = this.#resampler.push(block);
    this.#level = samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
    const recordedAt = Date.now();
    for (const recording of this.#recordings) {
      recording.put(toInt16(samples), recordedAt);
    }
  }
};
function checkBrowser() {
  const {
    isSecureContext,
    navigator: navigator2,
    AudioWorkletNode: worklet
  } = globalThis;
  if (isSecureContext === false) {
    const what = "a page can use the microphone only if it was loaded by https or from localhost";
    throw new MicrophoneError("NO_SECURE_CONTEXT", what);
  }
  if (navigator2?.mediaDevices === void 0 || worklet === void 0) {
    const what = "this browser has no getUserMedia or no AudioWorklet";
    throw new MicrophoneError("NOT_SUPPORTED", what);
  }
}
async function request2({ deviceId, constraints }) {
  const audio = {
    channelCount: 1,
    // The page plays speech while it listens.
    echoCancellation: true,
    noiseSuppression: true,
    autoGainControl: true,
    ...deviceId === void 0 ? {} : { deviceId: { exact: deviceId } },
    ...constraints
  };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    const name = error instanceof Error ? error.name : "";
    const [reason, message] = REASONS[name] ?? ["NOT_SUPPORTED", `getUserMedia failed: ${name}`];
    throw new MicrophoneError(reason, message, { cause: error });
  }
}
async function loadWorklet(context, given) {
  const url = given ?? new URL("./worklet.js", import.meta.url);
  try {
    await context.audioWorklet.addModule(url);
  } catch (error) {
    const what = `${String(url)} could not be loaded: is the file there (workletUrl), and does the page's content security policy allow it (script-src)?`;
    throw new MicrophoneError("WORKLET_FAILED", what, { cause: error });
  }
}

// src/player/speech-audio.ts
function soundOf(speech, format) {
  if (textAt(speech, 0) === "RIFF" && textAt(speech, 8) === "WAVE") {
    return soundOfWav(speech);
  }
  if (format?.encoding !== "PCM_S16LE") {
    const what = format === null ? "speech without a known format" : format.encoding;
    throw new PlayerError("UNSUPPORTED_FORMAT", `${what} cannot be played; PCM_S16LE and WAV can`);
  }
  return deinterleaved(speech, format.sampleRateHz, format.channels);
}
function deinterleaved(bytes, sampleRateHz, count) {
  const frames = Math.floor(bytes.length / 2 / count);
  if (frames === 0) {
    throw new PlayerError("UNSUPPORTED_FORMAT", "there is no speech to play");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const channels = Array.from({ length: count }, (_, channel) => {
    const samples = new Float32Array(frames);
    for (let at = 0; at < frames; at += 1) {
      samples[at] = view.getInt16(2 * (at * count + channel), true) / 32768;
    }
    return samples;
  });
  return { sampleRateHz, channels };
}
var PCM = 1;
var WAV_HEADER_BYTES = 12;
var CHUNK_HEADER_BYTES = 8;
var FORMAT_BYTES = 16;
function soundOfWav(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  let format = null;
  for (let at = WAV_HEADER_BYTES; at + CHUNK_HEADER_BYTES <= file.length; ) {
    const name = textAt(file, at);
    const start = at + CHUNK_HEADER_BYTES;
    const size = Math.min(view.getUint32(at + 4, true), file.length - start);
    if (name === "fmt " && size >= FORMAT_BYTES) {
      format = wavFormat(view, start);
    } else if (name === "data" && format !== null) {
      const data = file.subarray(start, start + size);
      return deinterleaved(data, format.sampleRateHz, format.channels);
    }
    at = start + size + size % 2;
  }
  throw new PlayerError("UNSUPPORTED_FORMAT", "the WAV file has no format or no data");
}
function wavFormat(view, at) {
  const encoding = view.getUint16(at, true);
  const channels = view.getUint16(at + 2, true);
  const bits = view.getUint16(at + 14, true);
  if (encoding !== PCM || bits !== 16 || channels < 1 || channels > 2) {
    const what = `the WAV file has encoding ${encoding}, ${bits} bits and ${channels} channels`;
    throw new PlayerError("UNSUPPORTED_FORMAT", `${what}; 16-bit PCM of one or two can be played`);
  }
  return { channels, sampleRateHz: view.getUint32(at + 4, true) };
}
function textAt(bytes, at) {
  return String.fromCharCode(...bytes.subarray(at, at + 4));
}

// src/player/player.ts
var Turn = class {
  /** Null until the browser lets the page play. */
  source = null;
  isStopped = false;
  /** Resolves when it is stopped. A context that does not run never says that a sound has ended. */
  stopped;
  #resolve = () => void 0;
  constructor() {
    this.stopped = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }
  stop() {
    this.isStopped = true;
    this.source?.stop();
    this.#resolve();
  }
};
var Player = class {
  #session;
  #context;
  #ownsContext;
  #queue = [];
  #current = null;
  #isRunning = false;
  /** Resolves when everything that waited was played. */
  #done = Promise.resolve();
  #closed = false;
  constructor({ session, context } = {}) {
    this.#session = session;
    this.#context = context ?? null;
    this.#ownsContext = context === void 0;
    context?.addEventListener("statechange", this.#onStateChange);
  }
  /** Whether speech is being played. */
  get playing() {
    return this.#current?.source != null;
  }
  /**
   * Allows the page to play sound. Call it in the handler of a tap, before the first speech:
   * browsers play nothing before that, and iOS wants the context made and resumed in there.
   *
   * Throws PlayerError: BLOCKED if it is not the handler of a tap.
   */
  async unlock() {
    if (!await starts(this.#open())) {
      throw blocked();
    }
  }
  /**
   * Plays speech after what is being played already. Returns when it has ended. Playing the same
   * speech again is fine.
   *
   * Throws PlayerError: UNSUPPORTED_FORMAT, or BLOCKED if the user has not tapped yet.
   */
  async play(speech) {
    return this.#add(this.#soundOf(speech), false);
  }
  /** Plays speech at once, instead of what is being played now; then goes on with what waits. */
  async replay(speech) {
    const sound = this.#soundOf(speech);
    this.#current?.stop();
    return this.#add(sound, true);
  }
  /** Stops, and drops what waits. */
  stop() {
    for (const item of this.#queue.splice(0)) {
      item.resolve("stopped");
    }
    this.#current?.stop();
  }
  /** Stops, and gives the audio device back. */
  async close() {
    this.stop();
    this.#closed = true;
    const context = this.#context;
    this.#context = null;
    context?.removeEventListener("statechange", this.#onStateChange);
    await this.#done;
    if (this.#ownsContext && context !== null && context.state !== "closed") {
      await context.close();
    }
  }
  /** Speech that a phone call interrupts goes on after it. */
  #onStateChange = () => {
    const context = this.#context;
    if (context?.state === "closed") {
      this.stop();
    } else if (context !== null && this.#current !== null) {
      restart(context);
    }
  };
  #open() {
    if (this.#closed || this.#context?.state === "closed") {
      throw new PlayerError("CLOSED", "the player is closed");
    }
    if (!("AudioContext" in globalThis) && this.#context === null) {
      throw new PlayerError("NOT_SUPPORTED", "this runtime has no AudioContext");
    }
    if (this.#context === null) {
      this.#context = new AudioContext();
      this.#context.addEventListener("statechange", this.#onStateChange);
    }
    return this.#context;
  }
  #soundOf({ speech, speechFormat }) {
    this.#open();
    return soundOf(speech, speechFormat);
  }
  async #add(sound, first) {
    return new Promise((resolve, reject) => {
      const item = { sound, resolve, reject };
      if (first) {
        this.#queue.unshift(item);
      } else {
        this.#queue.push(item);
      }
      if (!this.#isRunning) {
        this.#done = this.#run();
      }
    });
  }
  /** Plays everything that waits. */
  async #run() {
    this.#isRunning = true;
    let started = false;
    for (let item = this.#queue.shift(); item !== void 0; item = this.#queue.shift()) {
      const turn = new Turn();
      this.#current = turn;
      try {
        const context = this.#open();
        const isReady = await starts(context, turn.stopped);
        if (!turn.isStopped) {
          if (!isReady) {
            throw blocked();
          }
          if (!started) {
            started = true;
            this.#session?.playbackStarted();
          }
          await playOut(context, item.sound, turn);
        }
        item.resolve(turn.isStopped ? "stopped" : "played");
      } catch (error) {
        item.reject(error);
      }
      this.#current = null;
    }
    this.#isRunning = false;
    if (started) {
      this.#session?.playbackEnded();
    }
  }
};
async function playOut(context, sound, turn) {
  const { sampleRateHz, channels } = sound;
  const buffer = context.createBuffer(channels.length, channels[0]?.length ?? 0, sampleRateHz);
  channels.forEach((samples, channel) => {
    buffer.copyToChannel(samples, channel);
  });
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  const ended = new Promise((resolve) => {
    source.onended = () => {
      resolve();
    };
  });
  source.start();
  turn.source = source;
  await Promise.race([ended, turn.stopped]);
  source.disconnect();
}
function blocked() {
  const what = "the browser plays sound only after a tap: call unlock() in its handler";
  return new PlayerError("BLOCKED", what);
}
export {
  BufferFullError,
  Listener,
  ListenerLostError,
  Microphone,
  MicrophoneError,
  Player,
  PlayerError,
  Recording,
  Resampler,
  Room,
  RoomError,
  RoomRefusedError,
  RoomUnavailableError,
  SPEECH_FORMAT,
  Session,
  SessionError,
  SessionLostError,
  SessionRefusedError,
  SessionUnavailableError,
  VoiceActivity,
  offeredDirections,
  toInt16
};
