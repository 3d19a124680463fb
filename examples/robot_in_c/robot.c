/*
 * A Fleetlog robot in C by long polling: one file, one loop, no thread, nothing but libcurl.
 *
 *   make && ./robot http://127.0.0.1:8780 default c1          (token, if any: FLEETLOG_TOKEN)
 *   fleetlog submit work --payload '{"ms": 2000}' --wait
 *
 * It has one slot and does the kind `work`: payload {"ms": how long, "fail": "retryable" or "fatal" (optional)},
 * result {"done": true, "ms": ...}. Put your own work into step(): it must come back within a few milliseconds.
 *
 * What the protocol asks of a robot, and where it is done:
 *   hello first, naming everything whose final report has no ack ........ say_hello()
 *   final reports directly after welcome, only then ready ............... on_welcome()
 *   start only after the ack of accept, and not if that came too late ... on_ack()
 *   a heartbeat in every poll, naming every attempt held ................ write_heartbeat()
 *   end the work by the own clock after 0.95 of stop_after_ms ........... check_deadline()
 *   send again what has no answer after 5 s: same id, next number ....... write_messages()
 *   SIGTERM: ready(0), let the work end, then stopped(shutdown), bye .... check_leaving()
 */
#define _POSIX_C_SOURCE 200809L
#include <curl/curl.h>
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RESEND_AFTER_S 5.0
#define DEADLINE_SHARE 0.95
#define GRACE_S 30.0
#define PENDING_MAX 16
#define BEATS_MAX 16
#define NAME_MAX_BYTES 129
#define DEPTH_MAX 64

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("robot: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

/* Seconds by the clock that also counts while the machine sleeps: a lease does not wait. */
static double now_s(void) {
    struct timespec t;
#ifdef CLOCK_BOOTTIME
    clock_gettime(CLOCK_BOOTTIME, &t);
#else
    clock_gettime(CLOCK_MONOTONIC, &t);
#endif
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_s(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* ---- a growing text ---- */

struct text {
    char *bytes;
    size_t length, room;
};

static void add_bytes(struct text *text, const char *bytes, size_t count) {
    if (text->length + count + 1 > text->room) {
        text->room = 2 * (text->length + count + 1);
        text->bytes = realloc(text->bytes, text->room);
        if (text->bytes == NULL) fail("out of memory");
    }
    memcpy(text->bytes + text->length, bytes, count);
    text->length += count;
    text->bytes[text->length] = '\0';
}

static void add(struct text *text, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (count < 0 || (size_t)count >= sizeof line) fail("a line is too long");
    add_bytes(text, line, (size_t)count);
}

/* A JSON string with everything escaped that must be. */
static void add_string(struct text *text, const char *string) {
    add_bytes(text, "\"", 1);
    for (const unsigned char *c = (const unsigned char *)string; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') add(text, "\\%c", *c);
        else if (*c < 0x20) add(text, "\\u%04x", *c);
        else add_bytes(text, (const char *)c, 1);
    }
    add_bytes(text, "\"", 1);
}

/* ---- reading JSON: a pointer to a value is all there is; NULL means absent or malformed ---- */

static const char *blank(const char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r') p++;
    return p;
}

static const char *after_string(const char *p) {
    if (*p++ != '"') return NULL;
    while (*p != '"') {
        if ((unsigned char)*p < 0x20) return NULL; /* the end of the text, too */
        if (*p++ == '\\') {
            if (*p == 'u') {
                for (int i = 1; i <= 4; i++)
                    if (!isxdigit((unsigned char)p[i])) return NULL;
                p += 4;
            } else if (*p == '\0' || strchr("\"\\/bfnrt", *p) == NULL) {
                return NULL;
            }
            p++;
        }
    }
    return p + 1;
}

static const char *after_value(const char *p, int depth) {
    p = blank(p);
    if (*p == '"') return after_string(p);
    if (*p == '{' || *p == '[') {
        char closing = *p == '{' ? '}' : ']';
        if (depth == DEPTH_MAX) return NULL;
        p = blank(p + 1);
        if (*p == closing) return p + 1;
        for (;;) {
            if (closing == '}') {
                p = after_string(blank(p));
                if (p == NULL || *(p = blank(p)) != ':') return NULL;
                p++;
            }
            p = after_value(p, depth + 1);
            if (p == NULL) return NULL;
            p = blank(p);
            if (*p == closing) return p + 1;
            if (*p++ != ',') return NULL;
        }
    }
    const char *start = p;
    while (*p != '\0' && strchr("+-.0123456789aeflnrstuE", *p) != NULL) p++; /* a number, true, false, null */
    return p == start ? NULL : p;
}

/* The value of a string, at most size - 1 bytes of UTF-8; false if it is none or does not fit. */
static bool string_of(const char *p, char *into, size_t size) {
    size_t used = 0;
    if (p == NULL || *(p = blank(p)) != '"' || after_string(p) == NULL) return false;
    for (p++; *p != '"'; p++) {
        unsigned long code = (unsigned char)*p;
        if (*p == '\\') {
            const char *plain = "\"\\/bfnrt", *meant = "\"\\/\b\f\n\r\t";
            p++;
            if (*p != 'u') {
                code = (unsigned char)meant[strchr(plain, *p) - plain];
            } else {
                char digits[5] = {p[1], p[2], p[3], p[4], '\0'};
                code = strtoul(digits, NULL, 16);
                p += 4;
                if (code >= 0xD800 && code < 0xDC00 && p[1] == '\\' && p[2] == 'u') {
                    char low[5] = {p[3], p[4], p[5], p[6], '\0'};
                    code = 0x10000 + ((code - 0xD800) << 10) + (strtoul(low, NULL, 16) - 0xDC00);
                    p += 6;
                }
                if (code == 0 || (code >= 0xD800 && code < 0xE000)) return false;
                if (used + 5 > size) return false;
                if (code >= 0x10000) {
                    into[used++] = (char)(0xF0 | code >> 18);
                    into[used++] = (char)(0x80 | (code >> 12 & 0x3F));
                } else if (code >= 0x800) {
                    into[used++] = (char)(0xE0 | code >> 12);
                }
                if (code >= 0x800) into[used++] = (char)(0x80 | (code >> 6 & 0x3F));
                else if (code >= 0x80) into[used++] = (char)(0xC0 | code >> 6);
                into[used++] = (char)(code < 0x80 ? code : (0x80 | (code & 0x3F)));
                continue;
            }
        }
        if (used + 2 > size) return false;
        into[used++] = (char)code;
    }
    into[used] = '\0';
    return true;
}

/* The value of a member of an object. */
static const char *member(const char *object, const char *name) {
    if (object == NULL || *(object = blank(object)) != '{' || after_value(object, 0) == NULL) return NULL;
    for (const char *p = blank(object + 1); *p != '}'; p = blank(p)) {
        char key[64];
        bool fits = string_of(p, key, sizeof key);
        const char *value = blank(after_string(p)) + 1;
        if (fits && strcmp(key, name) == 0) return blank(value);
        p = blank(after_value(value, 0));
        if (*p == ',') p = blank(p + 1);
    }
    return NULL;
}

/* The first element of an array; the one after `element`; NULL at the end. */
static const char *first(const char *array) {
    if (array == NULL || *(array = blank(array)) != '[' || after_value(array, 0) == NULL) return NULL;
    array = blank(array + 1);
    return *array == ']' ? NULL : array;
}

static const char *next(const char *element) {
    const char *p = blank(after_value(element, 0));
    return *p == ',' ? blank(p + 1) : NULL;
}

static bool is_null(const char *value) { return value == NULL || strncmp(value, "null", 4) == 0; }
static bool is_true(const char *value) { return value != NULL && strncmp(value, "true", 4) == 0; }
static long long number_of(const char *value, long long otherwise) {
    return is_null(value) ? otherwise : strtoll(value, NULL, 10);
}
static bool string_is(const char *value, const char *wanted) {
    char text[64];
    return string_of(value, text, sizeof text) && strcmp(text, wanted) == 0;
}

/* ---- what the robot knows ---- */

enum phase { FREE, ACCEPTING, RUNNING };

static struct {
    enum phase phase;
    char task[NAME_MAX_BYTES];
    long long number;
    char accept_id[64];
    char told[16];       /* why it should end: cancel, stop, own_deadline, shutdown; "" while it should not */
    double renewed_at;   /* first sending of the last answered accept or heartbeat that named it */
    double stop_after_s; /* below 0: no own deadline */
    double started_at;
    double work_s;
    char fails[16];
} attempt;

/* A message without an answer. A final report keeps its task and attempt, which heartbeats and hello go on naming. */
static struct pending {
    bool used, final;
    char id[64], type[16], task[NAME_MAX_BYTES];
    long long number;
    struct text body; /* the object without its last brace, epoch and seq */
    double first_sent_at, sent_at, not_before;
    unsigned long age;
} pending[PENDING_MAX];

static struct {
    char id[64];
    double sent_at;
    bool names_attempt;
} beats[BEATS_MAX];

static struct {
    const char *gateway, *pool, *robot, *token;
    char boot[17], session[37], hello_id[64];
    unsigned long counter, age;
    long long epoch, seq, seen; /* epoch 0: no session */
    double heartbeat_s, hello_sent_at, polled_at;
    double pause_until; /* no poll before that */
    int tries;
    bool hello_sent, ready_said, bye_said, bye_done;
    double leaving_since; /* 0: not leaving */
} self = {.heartbeat_s = 1.0};

static volatile sig_atomic_t signalled;

static void on_signal(int number) {
    if (signalled) _Exit(128 + number);
    signalled = number;
}

static void random_hex(char *into, int digits) {
    FILE *source = fopen("/dev/urandom", "rb");
    unsigned char byte;
    if (source == NULL) fail("no /dev/urandom");
    for (int i = 0; i < digits; i++) {
        if (fread(&byte, 1, 1, source) != 1) fail("no random numbers");
        into[i] = "0123456789abcdef"[byte & 15];
    }
    into[digits] = '\0';
    fclose(source);
}

static void new_id(char *into) { snprintf(into, 64, "%s.%lu", self.boot, ++self.counter); }

static struct pending *new_message(const char *type, bool final) {
    for (struct pending *message = pending; message < pending + PENDING_MAX; message++) {
        if (message->used) continue;
        struct text body = message->body;
        body.length = 0;
        *message = (struct pending){.used = true, .final = final, .body = body, .age = ++self.age};
        new_id(message->id);
        snprintf(message->type, sizeof message->type, "%s", type);
        add(&message->body, "{\"type\":\"%s\",\"id\":\"%s\"", type, message->id);
        return message;
    }
    fail("too many messages without an answer");
    return NULL;
}

static struct pending *new_about(const char *type, bool final, const char *task, long long number) {
    struct pending *message = new_message(type, final);
    snprintf(message->task, sizeof message->task, "%s", task);
    message->number = number;
    add(&message->body, ",\"task\":");
    add_string(&message->body, task);
    add(&message->body, ",\"attempt\":%lld", number);
    return message;
}

static struct pending *find_message(const char *id) {
    for (struct pending *message = pending; message < pending + PENDING_MAX; message++)
        if (message->used && strcmp(message->id, id) == 0) return message;
    return NULL;
}

/* ---- final reports ---- */

static void say_complete(void) {
    struct pending *message = new_about("complete", true, attempt.task, attempt.number);
    add(&message->body, ",\"result\":{\"done\":true,\"ms\":%.0f}", attempt.work_s * 1000);
    attempt.phase = FREE;
}

static void say_fail(const char *class, const char *type, const char *text) {
    struct pending *message = new_about("fail", true, attempt.task, attempt.number);
    add(&message->body, ",\"class\":\"%s\",\"error\":{\"type\":\"%s\",\"message\":", class, type);
    add_string(&message->body, text);
    add(&message->body, "}");
    attempt.phase = FREE;
}

static void say_stopped(void) {
    struct pending *message = new_about("stopped", true, attempt.task, attempt.number);
    add(&message->body, ",\"why\":\"%s\"", attempt.told);
    attempt.phase = FREE;
}

static void say_reject(const char *task, long long number, const char *reason, const char *text) {
    struct pending *message = new_about("reject", false, task, number);
    add(&message->body, ",\"reason\":\"%s\",\"text\":", reason);
    add_string(&message->body, text);
}

static void say_ready(int n) {
    for (struct pending *old = pending; old < pending + PENDING_MAX; old++)
        if (old->used && strcmp(old->type, "ready") == 0) old->used = false; /* only the newest counts */
    add(&new_message("ready", false)->body, ",\"n\":%d", n);
}

/* ---- the work itself ---- */

static void step(void) {
    if (attempt.phase != RUNNING) return;
    if (attempt.told[0] != '\0') { /* here a device would be brought to rest, before this is said */
        say_stopped();
    } else if (attempt.fails[0] != '\0') {
        say_fail(attempt.fails, "Asked", "the payload asked for this failure");
    } else if (now_s() >= attempt.started_at + attempt.work_s) {
        say_complete();
    } else {
        sleep_s(0.01);
    }
}

static void check_deadline(void) {
    if (attempt.phase == RUNNING && attempt.stop_after_s >= 0 && strcmp(attempt.told, "stop") != 0 &&
        now_s() >= attempt.renewed_at + DEADLINE_SHARE * attempt.stop_after_s)
        strcpy(attempt.told, "own_deadline");
}

static bool nothing_held(void) {
    for (struct pending *message = pending; message < pending + PENDING_MAX; message++)
        if (message->used && message->final) return false;
    return attempt.phase == FREE;
}

/* The session is over: say hello again, in a new one. Messages without an answer stay. */
static void lose_session(void) {
    self.epoch = 0;
    self.hello_sent = false;
}

static void pause_until(double until) {
    if (until > self.pause_until) self.pause_until = until;
}

/* A random time up to min(30 s, 0.5 s * 2^k), k anew at each welcome. */
static void back_off(void) {
    double limit = 0.5 * (double)(1 << (self.tries < 6 ? self.tries : 6));
    self.tries++;
    pause_until(now_s() + (limit < 30 ? limit : 30) * ((double)rand() / RAND_MAX));
}

static void check_leaving(void) {
    if (!signalled) return;
    if (self.leaving_since > 0 && now_s() > self.leaving_since + 2 * GRACE_S)
        fail("the gateway does not answer; the lease will end by itself");
    if (self.leaving_since == 0) {
        self.leaving_since = now_s();
        if (self.epoch != 0) say_ready(0);
    }
    if (attempt.phase != FREE && attempt.told[0] == '\0' && now_s() >= self.leaving_since + GRACE_S)
        strcpy(attempt.told, "shutdown");
    if (nothing_held() && self.epoch != 0 && !self.bye_said) {
        new_message("bye", false);
        self.bye_said = true;
    }
}

/* ---- what the gateway says ---- */

static void tell(const char *notice, const char *why) {
    char task[NAME_MAX_BYTES];
    if (attempt.phase == FREE || !string_of(member(notice, "task"), task, sizeof task)) return;
    if (strcmp(task, attempt.task) != 0 || number_of(member(notice, "attempt"), 0) != attempt.number) return;
    if (attempt.told[0] == '\0' || strcmp(why, "stop") == 0) snprintf(attempt.told, sizeof attempt.told, "%s", why);
}

static void on_welcome(const char *message) {
    self.epoch = number_of(member(message, "epoch"), 0);
    self.heartbeat_s = (double)number_of(member(message, "heartbeat_every_ms"), 1000) / 1000;
    self.seq = 0;
    self.tries = 0;
    self.ready_said = false;
    memset(beats, 0, sizeof beats);
    for (struct pending *old = pending; old < pending + PENDING_MAX; old++) {
        old->sent_at = old->not_before = 0; /* everything without an answer goes again, final reports first */
        if (old->used && strcmp(old->type, "ready") == 0) old->used = false;
    }
    for (const char *held = first(member(message, "held")); held != NULL; held = next(held))
        if (string_is(member(held, "verdict"), "stop")) tell(held, "stop");
}

static void on_assign(const char *message) {
    char task[NAME_MAX_BYTES], kind[65];
    long long number = number_of(member(message, "attempt"), 0);
    const char *payload = member(message, "payload");
    if (!string_of(member(message, "task"), task, sizeof task)) return;
    if (attempt.phase != FREE && strcmp(task, attempt.task) == 0 && number == attempt.number) {
        struct pending *accept = find_message(attempt.accept_id); /* a repeat gets the same answer */
        if (accept == NULL) {
            accept = new_about("accept", false, task, number);
            strcpy(attempt.accept_id, accept->id);
        }
        accept->sent_at = 0;
        return;
    }
    for (struct pending *old = pending; old < pending + PENDING_MAX; old++)
        if (old->used && strcmp(old->type, "reject") == 0 && strcmp(old->task, task) == 0 && old->number == number) {
            old->sent_at = 0;
            return;
        }
    if (attempt.phase != FREE || signalled || number_of(member(message, "slot_cost"), 1) > 1) {
        say_reject(task, number, "busy", "this robot has one slot");
        return;
    }
    if (!string_of(member(message, "kind"), kind, sizeof kind) || strcmp(kind, "work") != 0) {
        say_reject(task, number, "cannot", "this robot does only work");
        return;
    }
    memset(&attempt, 0, sizeof attempt);
    attempt.phase = ACCEPTING;
    strcpy(attempt.task, task);
    attempt.number = number;
    attempt.work_s = (double)number_of(member(payload, "ms"), 0) / 1000;
    if (string_is(member(payload, "fail"), "fatal")) strcpy(attempt.fails, "fatal");
    else if (!is_null(member(payload, "fail"))) strcpy(attempt.fails, "retryable");
    strcpy(attempt.accept_id, new_about("accept", false, task, number)->id);
}

static void on_ack(const char *message, struct pending *of) {
    if (strcmp(of->type, "accept") == 0 && attempt.phase == ACCEPTING && strcmp(of->id, attempt.accept_id) == 0) {
        long long stop_after_ms = number_of(member(message, "stop_after_ms"), -1);
        attempt.stop_after_s = stop_after_ms < 0 ? -1 : (double)stop_after_ms / 1000;
        attempt.renewed_at = of->first_sent_at;
        attempt.started_at = now_s();
        attempt.phase = RUNNING;
        check_deadline(); /* an ack that comes too late starts nothing: step() will only say so */
    }
    if (strcmp(of->type, "bye") == 0) self.bye_done = true;
    of->used = false;
}

static void on_refused(const char *message, struct pending *of) {
    char reason[64] = "", text[256] = "";
    string_of(member(message, "reason"), reason, sizeof reason);
    string_of(member(message, "text"), text, sizeof text);
    if (strcmp(reason, "no_session") == 0 || strcmp(reason, "hello_first") == 0) {
        lose_session();
        return;
    }
    if (is_true(member(message, "retry"))) {
        of->not_before = now_s() + (double)number_of(member(message, "retry_after_ms"), 1000) / 1000;
        of->sent_at = 0;
        return;
    }
    fprintf(stderr, "robot: %s was refused: %s %s\n", of->type, reason, text);
    if (strcmp(of->type, "accept") == 0 && strcmp(of->id, attempt.accept_id) == 0 && attempt.phase == ACCEPTING)
        attempt.phase = FREE;
    if (strcmp(of->type, "bye") == 0) self.bye_done = true;
    of->used = false;
}

static void on_heartbeat_ack(const char *message) {
    char of[64];
    if (string_of(member(message, "of"), of, sizeof of))
        for (int i = 0; i < BEATS_MAX; i++)
            if (strcmp(beats[i].id, of) == 0 && beats[i].names_attempt && attempt.phase == RUNNING &&
                beats[i].sent_at > attempt.renewed_at)
                attempt.renewed_at = beats[i].sent_at;
    self.heartbeat_s = (double)number_of(member(message, "heartbeat_every_ms"), 1000) / 1000;
    for (const char *held = first(member(message, "stop")); held != NULL; held = next(held)) tell(held, "stop");
    for (const char *held = first(member(message, "cancel")); held != NULL; held = next(held)) tell(held, "cancel");
}

static void on_message(const char *message) {
    char type[32], of[64] = "";
    if (!string_of(member(message, "type"), type, sizeof type)) return;
    string_of(member(message, "of"), of, sizeof of);
    struct pending *answered = find_message(of);
    if (strcmp(type, "welcome") == 0 && strcmp(of, self.hello_id) == 0) on_welcome(message);
    else if (strcmp(type, "assign") == 0) on_assign(message);
    else if (strcmp(type, "ack") == 0 && answered != NULL) on_ack(message, answered);
    else if (strcmp(type, "refused") == 0 && answered != NULL) on_refused(message, answered);
    else if (strcmp(type, "refused") == 0 && strcmp(of, self.hello_id) == 0 && !is_true(member(message, "retry")))
        fail("the gateway does not want this robot: %.300s", message);
    else if (strcmp(type, "heartbeat_ack") == 0) on_heartbeat_ack(message);
    else if (strcmp(type, "cancel") == 0) tell(message, "cancel");
    else if (strcmp(type, "stop") == 0) tell(message, "stop");
    else if (strcmp(type, "superseded") == 0) fail("a newer session of this robot took over");
    else if (strcmp(type, "moved") == 0) {
        lose_session();
        pause_until(now_s() + (double)number_of(member(message, "after_ms"), 0) / 1000);
    }
}

/* ---- what the robot says ---- */

static void add_holding(struct text *text, bool in_hello) {
    const char *comma = "";
    add(text, "\"holding\":[");
    if (attempt.phase != FREE && (in_hello || attempt.phase == RUNNING)) {
        add(text, "{\"task\":");
        add_string(text, attempt.task);
        add(text, ",\"attempt\":%lld", attempt.number);
        if (in_hello) add(text, ",\"started\":%s", attempt.phase == RUNNING ? "true" : "false");
        else if (attempt.work_s > 0) {
            double done = (now_s() - attempt.started_at) / attempt.work_s;
            add(text, ",\"progress\":%d", done >= 1 ? 100 : (int)(100 * done));
        }
        add(text, "}");
        comma = ",";
    }
    for (struct pending *message = pending; message < pending + PENDING_MAX; message++) {
        if (!message->used || !message->final) continue;
        add(text, "%s{\"task\":", comma);
        add_string(text, message->task);
        add(text, ",\"attempt\":%lld%s}", message->number, in_hello ? ",\"started\":true" : "");
        comma = ",";
    }
    add(text, "]");
}

static void say_hello(struct text *poll) {
    char hex[33];
    random_hex(hex, 32);
    snprintf(self.session, sizeof self.session, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hex, hex + 8, hex + 13, hex + 17, hex + 20);
    new_id(self.hello_id);
    self.seen = 0;
    self.hello_sent = true;
    self.hello_sent_at = now_s();
    add(poll, "{\"session\":\"%s\",\"seen\":0,\"wait_ms\":5000,\"messages\":[{\"type\":\"hello\",\"id\":\"%s\",", self.session,
        self.hello_id);
    add(poll, "\"slots\":1,\"capabilities\":[\"kind:work\"],\"agent\":\"fleetlog-c/1\",");
    add_holding(poll, true);
    add(poll, "}]}");
}

static void write_heartbeat(struct text *poll) {
    int oldest = 0;
    for (int i = 1; i < BEATS_MAX; i++)
        if (beats[i].sent_at < beats[oldest].sent_at) oldest = i;
    new_id(beats[oldest].id);
    beats[oldest].sent_at = now_s();
    beats[oldest].names_attempt = attempt.phase == RUNNING;
    add(poll, "{\"type\":\"heartbeat\",\"id\":\"%s\",\"epoch\":%lld,\"seq\":%lld,", beats[oldest].id, self.epoch, ++self.seq);
    add_holding(poll, false);
    add(poll, "}");
}

/* Messages never sent, or without an answer for 5 s; final reports first, then in the order in which they were made. */
static void write_messages(struct text *poll) {
    for (int final = 1; final >= 0; final--) {
        for (unsigned long after = 0;;) {
            struct pending *due = NULL;
            for (struct pending *m = pending; m < pending + PENDING_MAX; m++)
                if (m->used && m->final == (final == 1) && m->age > after && (due == NULL || m->age < due->age)) due = m;
            if (due == NULL) break;
            after = due->age;
            double now = now_s();
            if (now < due->not_before || (due->sent_at > 0 && now < due->sent_at + RESEND_AFTER_S)) continue;
            due->sent_at = now;
            if (due->first_sent_at == 0) due->first_sent_at = now;
            add(poll, ",");
            add_bytes(poll, due->body.bytes, due->body.length);
            add(poll, ",\"epoch\":%lld,\"seq\":%lld}", self.epoch, ++self.seq);
        }
    }
}

static bool something_to_send(void) {
    for (struct pending *message = pending; message < pending + PENDING_MAX; message++)
        if (message->used && message->sent_at == 0 && now_s() >= message->not_before) return true;
    return false;
}

/* While it works the robot polls twice a window, or when it has something to say, and never waits in a poll. */
static bool may_poll(void) {
    if (now_s() < self.pause_until) return false;
    if (self.epoch == 0 || attempt.phase != RUNNING) return true;
    return something_to_send() || now_s() >= self.polled_at + self.heartbeat_s;
}

static int wait_ms(void) {
    if (self.epoch == 0) return 1000;
    return attempt.phase == RUNNING ? 0 : (int)(self.heartbeat_s * 1000);
}

static size_t take_body(char *bytes, size_t size, size_t count, void *into) {
    add_bytes(into, bytes, size * count);
    return size * count;
}

/* One poll: the HTTP status, 0 if nobody answered. */
static long post(CURL *curl, const char *url, struct curl_slist *headers, struct text *poll, struct text *answer) {
    long status = 0;
    answer->length = 0;
    add_bytes(answer, "", 0);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, poll->bytes);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)poll->length);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    /* Not longer than the own deadline allows: nothing is done while a poll hangs. */
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(self.heartbeat_s * 1000) + 6000L);
    CURLcode code = curl_easy_perform(curl);
    if (code != CURLE_OK) {
        fprintf(stderr, "robot: %s\n", curl_easy_strerror(code));
        return 0;
    }
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* What the answer says about the session; its messages are handled. */
static void take_answer(long status, const char *answer) {
    if (status == 200 && after_value(answer, 0) != NULL) {
        for (const char *m = first(member(answer, "messages")); m != NULL; m = next(m)) on_message(m);
        self.seen = number_of(member(answer, "cursor"), self.seen);
        long long closed = number_of(member(answer, "closed"), 0);
        if (closed >= 4001 && closed <= 4004) fail("the session was closed with %lld: %.300s", closed, answer);
        if (closed != 0 && self.bye_said) self.bye_done = true;
        if (closed != 0) {
            lose_session();
            back_off();
            if (closed == 4006) pause_until(now_s() + 60);
        }
    } else if (status == 410 || status == 421) {
        lose_session();
    } else if (status == 400 || status == 401 || status == 403 || status == 404 || status == 409) {
        fail("the gateway refuses this robot: %.400s", answer);
    } else {
        back_off(); /* nobody answered, or not now: the same session goes on, and messages come again */
    }
}

static void write_poll(struct text *poll) {
    poll->length = 0;
    self.polled_at = now_s();
    if (self.epoch == 0 && (!self.hello_sent || now_s() > self.hello_sent_at + 30)) {
        say_hello(poll);
        return;
    }
    if (self.epoch != 0 && !self.ready_said) {
        say_ready(signalled ? 0 : 1); /* goes after the final reports, which write_messages() puts first */
        self.ready_said = true;
    }
    add(poll, "{\"session\":\"%s\",\"seen\":%lld,\"wait_ms\":%d,\"messages\":[", self.session, self.seen, wait_ms());
    if (self.epoch != 0) {
        write_heartbeat(poll);
        write_messages(poll);
    }
    add(poll, "]}");
}

int main(int count, char **given) {
    struct text poll = {0}, answer = {0};
    char url[1024], authorization[512];
    if (count != 4) fail("usage: robot GATEWAY POOL ROBOT, for example robot http://127.0.0.1:8780 default c1");
    self.gateway = given[1], self.pool = given[2], self.robot = given[3], self.token = getenv("FLEETLOG_TOKEN");
    if ((size_t)snprintf(url, sizeof url, "%s/v1/pools/%s/robots/%s/poll", self.gateway, self.pool, self.robot) >= sizeof url)
        fail("the address of the gateway is too long");
    random_hex(self.boot, 16);
    srand((unsigned)strtoul(self.boot + 8, NULL, 16));
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:"); /* no pause before the body */
    if (self.token != NULL) {
        snprintf(authorization, sizeof authorization, "Authorization: Bearer %s", self.token);
        headers = curl_slist_append(headers, authorization);
    }

    while (!self.bye_done) {
        check_deadline();
        step();
        check_leaving();
        if (may_poll()) {
            write_poll(&poll);
            long status = post(curl, url, headers, &poll, &answer);
            take_answer(status, answer.bytes);
        } else if (attempt.phase != RUNNING) {
            sleep_s(0.02);
        }
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    curl_global_cleanup();
    return 0;
}
