/** Speech translation sessions of Lingua Scheduler, for browsers and Node.js. */

export { type AudioFormat, type Encoding, SPEECH_FORMAT } from "./audio-format.js";
export * from "./errors.js";
export * from "./events.js";
export { type Offer, type OfferedDirection, offeredDirections } from "./languages.js";
export type { Counts } from "./protocol/state.js";
export type { PauseDetection, RoomSpeaker, SessionOptions } from "./session/options.js";
export type { Audio, SendOptions } from "./session/sender.js";
export { Session, type Unacknowledged } from "./session/session.js";
export type { WebSocketConstructor, WebSocketLike } from "./session/socket.js";
export type { Token, TokenFunction } from "./session/tokens.js";
export * from "./room/events.js";
export { Listener } from "./room/listener.js";
export type {
  CreateRoomOptions,
  ListenOptions,
  RoomOptions,
  SpeakOptions,
} from "./room/options.js";
export type { ListenerCounts } from "./room/protocol/state.js";
export { type JoinToken, type JoinTokenOptions, Room } from "./room/room.js";
export { Microphone, type MicrophoneOptions } from "./microphone/microphone.js";
export { type RecordedBlock, Recording, type RecordingOptions } from "./microphone/recording.js";
export { Resampler, toInt16 } from "./microphone/resampler.js";
export { VoiceActivity, type VoiceActivityOptions } from "./microphone/voice-activity.js";
export {
  type PlaybackListener,
  type Played,
  Player,
  type PlayerOptions,
  type Speech,
} from "./player/player.js";
