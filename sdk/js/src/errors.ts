/** Every error that the SDK throws on purpose, except TypeError and RangeError for wrong arguments. */

/** Why a session or a listener cannot continue, or cannot begin. */
export type Failure = SessionError | RoomError;

/** An invalid field of a request, and what is wrong with it. */
export interface FieldViolation {
  /** Path of the field, such as "open.new.audioFormat". */
  readonly field: string;
  readonly description: string;
}

/** An error with a reason for tools. */
class ReasonedError extends Error {
  /**
   * @param reason for tools: an ErrorReason of the contract without its prefix, such as
   *   QUOTA_EXCEEDED, or a name that the subclass lists.
   * @param message one sentence for people.
   */
  constructor(
    readonly reason: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(`${reason}: ${message}`, options);
  }
}

/** The base of a session's errors. */
export class SessionError extends ReasonedError {
  override readonly name: string = "SessionError";
}

/** A gateway refuses this session, and a retry cannot help. */
export class SessionRefusedError extends SessionError {
  override readonly name = "SessionRefusedError";

  /**
   * @param reason such as UNAUTHENTICATED or INVALID_MESSAGE; or BAD_ADDRESS: this runtime refuses
   *   to connect there, for example from an https page to a ws address.
   * @param fieldViolations for INVALID_MESSAGE: the invalid fields.
   */
  constructor(
    reason: string,
    message: string,
    readonly fieldViolations: readonly FieldViolation[] = [],
    options?: ErrorOptions,
  ) {
    super(reason, withFields(message, fieldViolations), options);
  }
}

/** No gateway opened the session in time. Nothing has been sent. */
export class SessionUnavailableError extends SessionError {
  override readonly name = "SessionUnavailableError";

  /**
   * @param reason UNREACHABLE if no gateway answered; otherwise the last gateway's reason, such as
   *   SCHEDULER_DEPENDENCY_DOWN, or QUOTA_EXCEEDED if the tenant has reached its quota; or
   *   BROKEN_PROMISE: the servers violated the contract.
   * @param retryAfterMs milliseconds after which a retry may help; 0 if no server gave a time.
   */
  constructor(
    reason: string,
    message: string,
    readonly retryAfterMs = 0,
    options?: ErrorOptions,
  ) {
    super(reason, message, options);
  }
}

/** What was not finished when a session was lost. */
export interface Unfinished {
  /** Audio that no server has acknowledged. */
  readonly unacknowledgedChunks: number;
  readonly unacknowledgedBytes: number;
  /** Results and missing utterances that had arrived. */
  readonly resultsSeen: number;
}

/** The session cannot continue. Unacknowledged audio may be lost. */
export class SessionLostError extends SessionError implements Unfinished {
  override readonly name = "SessionLostError";
  readonly unacknowledgedChunks: number;
  readonly unacknowledgedBytes: number;
  readonly resultsSeen: number;

  /**
   * @param reason an ErrorReason such as SESSION_NOT_FOUND or SESSION_TAKEN_OVER; or UNREACHABLE: no
   *   gateway answered in time; CLOSED: the server closed it first; BROKEN_PROMISE: the server
   *   violated the contract; ABORTED: this side left it; UNREAD: the app did not read its results.
   */
  constructor(reason: string, message: string, unfinished: Unfinished, options?: ErrorOptions) {
    const { unacknowledgedChunks, unacknowledgedBytes, resultsSeen } = unfinished;
    super(
      reason,
      `${message} (${unacknowledgedChunks} chunks of audio were not acknowledged, ` +
        `${resultsSeen} results had arrived)`,
      options,
    );
    this.unacknowledgedChunks = unacknowledgedChunks;
    this.unacknowledgedBytes = unacknowledgedBytes;
    this.resultsSeen = resultsSeen;
  }
}

/** The base of the errors of rooms and listeners. A speaker's session has those of a session. */
export class RoomError extends ReasonedError {
  override readonly name: string = "RoomError";
}

/** A gateway refuses what was asked of a room, and a retry cannot help. */
export class RoomRefusedError extends RoomError {
  override readonly name = "RoomRefusedError";

  /**
   * @param reason such as ROOM_NOT_FOUND, ROOM_CLOSED, ROOM_FULL, PERMISSION_DENIED; or BAD_ADDRESS.
   * @param fieldViolations for INVALID_MESSAGE: the invalid fields.
   */
  constructor(
    reason: string,
    message: string,
    readonly fieldViolations: readonly FieldViolation[] = [],
    options?: ErrorOptions,
  ) {
    super(reason, withFields(message, fieldViolations), options);
  }
}

/** No gateway answered in time. Later the same may succeed. */
export class RoomUnavailableError extends RoomError {
  override readonly name = "RoomUnavailableError";

  /**
   * @param reason UNREACHABLE if no gateway answered; otherwise the last gateway's reason, such as
   *   SCHEDULER_DEPENDENCY_DOWN, or QUOTA_EXCEEDED if the tenant has reached its quota; or
   *   BROKEN_PROMISE: the servers violated the contract.
   * @param retryAfterMs milliseconds after which a retry may help; 0 if no server gave a time.
   */
  constructor(
    reason: string,
    message: string,
    readonly retryAfterMs = 0,
    options?: ErrorOptions,
  ) {
    super(reason, message, options);
  }
}

/** A listener cannot continue. What is said from `position` on does not reach it. */
export class ListenerLostError extends RoomError {
  override readonly name = "ListenerLostError";

  /**
   * @param reason an ErrorReason such as ROOM_NOT_FOUND or PERMISSION_DENIED; or UNREACHABLE,
   *   BROKEN_PROMISE, ABORTED or UNREAD, as in SessionLostError.
   * @param position the first room index that the listener has not seen.
   */
  constructor(
    reason: string,
    message: string,
    readonly position: number,
    options?: ErrorOptions,
  ) {
    super(reason, `${message} (seen are the utterances below ${position})`, options);
  }
}

function withFields(message: string, fieldViolations: readonly FieldViolation[]): string {
  const fields = fieldViolations.map((each) => `${each.field}: ${each.description}`);
  return [message, ...fields].join("; ");
}

/**
 * `send` was called so often without waiting for it that too much audio is waiting. Nothing of the
 * failed call was sent; the session continues.
 */
export class BufferFullError extends SessionError {
  override readonly name = "BufferFullError";

  constructor(
    readonly waitingBytes: number,
    readonly limitBytes: number,
  ) {
    super(
      "BUFFER_FULL",
      `${waitingBytes} bytes of audio wait to be sent, and ${limitBytes} are allowed: ` +
        "await send(), or record less until the connection is back",
    );
  }
}

/** Why a microphone cannot be used. */
export type MicrophoneReason =
  /** The page was not loaded by https or from localhost. */
  | "NO_SECURE_CONTEXT"
  /** The user or the page's policy denied access. */
  | "NO_PERMISSION"
  | "NO_DEVICE"
  /** Another program uses it, or the system does not give it away. */
  | "DEVICE_BUSY"
  /** It was unplugged, or access was withdrawn. */
  | "DEVICE_LOST"
  /** The browser has no AudioWorklet. */
  | "NOT_SUPPORTED"
  /** The browser records only after a tap: call `Microphone.open` in its handler. */
  | "BLOCKED"
  /** The worklet's file could not be loaded: wrong address, or forbidden by the page's policy. */
  | "WORKLET_FAILED"
  /** The app did not read the recording for too long. */
  | "NOT_READ";

export class MicrophoneError extends Error {
  override readonly name = "MicrophoneError";

  constructor(
    readonly reason: MicrophoneReason,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Why speech cannot be played. */
export type PlayerReason =
  /** The browser plays sound only after a tap: call `Player.unlock` in its handler. */
  | "BLOCKED"
  /** The speech is in a format that cannot be played, or there is none. */
  | "UNSUPPORTED_FORMAT"
  | "NOT_SUPPORTED"
  | "CLOSED";

export class PlayerError extends Error {
  override readonly name = "PlayerError";

  constructor(
    readonly reason: PlayerReason,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
