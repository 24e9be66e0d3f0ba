// @ts-check
/** The texts of the room page in English. The other languages have the same keys. */

export const EN = {
  "room.title": "Lingua: rooms",
  "room.unnamed": "Room",
  "room.leave": "Leave",
  "room.captions": "What is said",
  "room.quiet": "Nobody has said anything yet.",
  "room.quietHost": "Invite people with the code, then hold the button and speak.",
  "room.closed": "The room was closed.",
  "room.start": "To the start",
  "room.again": "Join again",
  "room.reconnecting": "Connection lost, reconnecting. Nothing is lost.",

  "start.heading": "Speak to a room",
  "start.intro":
    "One speaks, and everybody reads or hears it in their own language, on their own phone.",
  "start.make": "Make a room",
  "start.roomName": "Name of the room",
  "start.roomNameHint": "For example: Guided tour, 3 pm",
  "start.create": "Make the room",
  "start.join": "Join a room",
  "start.link": "Link to the room",
  "start.follow": "Continue",
  "start.noLink": "This is not a link to a room. It contains #room=… and &token=….",
  "start.talk": "Talk face to face instead",

  "me.name": "Your name",
  "me.nameHint": "Optional. Others see it.",
  "me.speaks": "You speak",
  "me.listens": "Your language",

  "lobby.heading": "Join {room}",
  "lobby.speakers": "Speaking: {names}",
  "lobby.nobody": "Nobody speaks yet.",
  "lobby.listen": "Listen",
  "lobby.speak": "Speak",
  "lobby.entering": "One moment…",

  "refusal.heading": "You cannot join this room",
  "refusal.NO_TOKEN":
    "The link is incomplete. Ask whoever invited you for the whole link, or scan the code again.",
  "refusal.UNAUTHENTICATED":
    "The link is not valid, or it has expired. Ask whoever invited you for a new one.",
  "refusal.PERMISSION_DENIED":
    "The link is not valid for this, or it has expired. Ask whoever invited you for a new one.",
  "refusal.ROOM_NOT_FOUND":
    "There is no such room. It may have ended. Ask whoever invited you for a new link.",
  "refusal.ROOM_CLOSED": "This room was closed. Nobody can join it any more.",
  "refusal.OTHER": "Something went wrong. Ask whoever invited you for a new link.",

  "sound.on": "Sound on",
  "sound.off": "Sound off",
  "sound.label": "Hear it spoken",

  "panel.name": "Invite, and who is here",
  "panel.open": "Invite and people",
  "panel.close": "Done",
  "invite.heading": "Invite listeners",
  "invite.code": "QR code of the link for listeners",
  "invite.listener": "Link for listeners",
  "invite.speaker": "Link for other speakers",
  "invite.copy": "Copy",
  "invite.copied": "Copied",
  "invite.making": "Making the link…",
  "invite.local":
    "This address works on this computer only. To invite others, open the page by its address in the network.",
  "people.heading": "Who is here",
  "people.none": "Nobody listens yet.",
  "people.listeners": "{count} listening",
  "people.withSound": "{count} with sound",
  "people.waiting": "{count} waiting",
  "people.speakers": "Speakers",
  "people.unnamed": "Unnamed",
  "people.you": "you",
  "close.button": "Close the room",
  "close.question": "Close the room for everybody?",
  "close.explain": "All members are disconnected, and nobody can join again.",
  "close.confirm": "Close it",
  "close.cancel": "Keep it open",

  "line.you": "You",
  "line.delivered": "Delivered: {languages}",
  "line.notIn": "Not in {language}: {why}",
  "line.nobody": "Nobody listened.",
  "line.several": "{count} utterances are missing: {why}",
  "line.OUT_OF_ORDER": "they did not arrive.",
  "line.LISTENING_CHANGED": "the connection was lost while the language changed.",
  "line.NOT_KEPT": "they are no longer kept.",
};
