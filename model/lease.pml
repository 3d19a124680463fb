/* The lease protocol: who may work on a task, and how that right ends.

   Checked with Spin by `make model`; docs/understand/model.md says what is modelled and what it found. Words are those
   of docs/glossary.md. Each rule has a switch: set to 0 it is removed, and Spin shows the story in which that matters.

   Time goes in ticks, W to a window. Everything between two ticks happens in any order. All tasks have one target. */

/* ---- rules, each of which can be removed ---- */
#ifndef OWN_DEADLINE          /* a robot ends its work by its own clock */
#define OWN_DEADLINE 1
#endif
#ifndef START_AFTER_ACK       /* a robot works only after the ack of its accept */
#define START_AFTER_ACK 1
#endif
#ifndef LATE_ACK_STARTS_NOTHING /* an ack of accept that comes after the own deadline */
#define LATE_ACK_STARTS_NOTHING 1
#endif
#ifndef FROM_SENDING          /* the own deadline runs from the sending of what was answered, not from the answer */
#define FROM_SENDING 1
#endif
#ifndef ANSWER_AFTER_LOG      /* a heartbeat is answered only when it is in the log */
#define ANSWER_AFTER_LOG 1
#endif
#ifndef FRESH_OUTCOMES        /* ... and outcomes were followed to an end asked for at most one window ago */
#define FRESH_OUTCOMES 1
#endif
#ifndef INPUT_BEFORE_TIME     /* time never overtakes input */
#define INPUT_BEFORE_TIME 1
#endif
#ifndef GRACE                 /* OwnershipTaken resets all counts */
#define GRACE 1
#endif
#ifndef MOVED_WAITS           /* OwnershipTaken moves open waits and holds by the time no owner ran */
#define MOVED_WAITS 1
#endif
#ifndef HELD_AFTER_RELEASE    /* slot and target stay held after `release` */
#define HELD_AFTER_RELEASE 1
#endif
#ifndef HELD_WHEN_FORGOTTEN   /* ... and after a hello that does not name the attempt */
#define HELD_WHEN_FORGOTTEN 1
#endif
#ifndef HELD_WHEN_CANCELLED   /* ... and after a cancel in LOST */
#define HELD_WHEN_CANCELLED 1
#endif
#ifndef HELD_IN_FULL          /* every hold lasts stop_after and windows; 0: after a cancel under `wait`, only what is left of the wait */
#define HELD_IN_FULL 1
#endif
#ifndef HOLD_WINDOWS          /* windows that a hold lasts beyond stop_after */
#define HOLD_WINDOWS 2
#endif
#ifndef EPOCH_CHECK           /* a message counts only in its robot's current session */
#define EPOCH_CHECK 1
#endif
#ifndef ATTEMPT_TOKEN         /* (task, attempt) is the fencing token of a report */
#define ATTEMPT_TOKEN 1
#endif
#ifndef NEWER_ATTEMPT         /* a late complete counts only if no newer attempt was assigned */
#define NEWER_ATTEMPT 1
#endif
#ifndef TERMINAL              /* nothing leads out of a terminal state */
#define TERMINAL 1
#endif
#ifndef SAYS_TWICE            /* a second complete marks the task "probably done twice" */
#define SAYS_TWICE 1
#endif
#ifndef FENCING               /* a former owner's commit is refused */
#define FENCING 1
#endif
#ifndef FENCE_BEFORE_READ     /* a new owner fences before it reads the log */
#define FENCE_BEFORE_READ 1
#endif
#ifndef ANSWER_AFTER_COMMIT   /* nobody is answered before the commit */
#define ANSWER_AFTER_COMMIT 1
#endif
#ifndef SILENCE_ACTS        /* time acts in total silence, too: windows close, accept-by passes */
#define SILENCE_ACTS 1
#endif
#ifndef ACCEPT_BY             /* an assignment that is not accepted in time is withdrawn */
#define ACCEPT_BY 1
#endif
#ifndef SENT_UNTIL_ACK        /* a report is sent until it is acknowledged */
#define SENT_UNTIL_ACK 1
#endif
#ifndef DOES_NOT_ACCEPT       /* a robot whose assignments lapse three times in a row gets no more */
#define DOES_NOT_ACCEPT 1
#endif

/* ---- sizes ---- */
#ifndef TASKS
#define TASKS 1
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2            /* attempts of a task; no more are dispatched */
#endif
#ifndef HELLOS
#define HELLOS 2              /* sessions of a robot; both begin in their first */
#endif
#ifndef FAULTS
#define FAULTS 2              /* faults and operator's verbs, any of those that are allowed below */
#endif
#ifndef SUBMITTED
#define SUBMITTED 1           /* 0: the submission is a step, too */
#endif
#ifndef W
#define W 1                   /* ticks of a window */
#endif
#ifndef N
#define N 2                   /* windows of a lease */
#endif
#ifndef LATEST
#define LATEST 0              /* ticks before stop_after at which the robot has stopped; 0 is the latest that is allowed */
#endif
#ifndef WAIT
#define WAIT 1                /* ticks a LOST task waits for its robot (policy wait) */
#endif
#ifndef ACCEPT
#define ACCEPT 1              /* ticks to accept */
#endif
#ifndef WORK
#define WORK 0                /* ticks of work before a task can be completed */
#endif
#ifndef LAPSES_MAX
#define LAPSES_MAX 3          /* assignments in a row that lapse: the robot gets no more until its next hello */
#endif
#ifndef UNREAD
#define UNREAD 2              /* records of `reports` that the owner has not taken */
#endif
#define REQUEUE 0
#define LOST_WAIT 1
#define NEVER 2
#ifndef POLICY
#define POLICY REQUEUE
#endif

/* ---- faults and verbs that are allowed ---- */
#ifndef CRASHES
#define CRASHES 1             /* a robot's program dies and is started anew */
#endif
#ifndef DEATHS
#define DEATHS 0              /* robot 1 dies for ever */
#endif
#ifndef FAULTY
#define FAULTY 1              /* robots that have faults: 1 (robot 0), 2 (both) */
#endif
#ifndef LATENCY
#define LATENCY 0             /* 1: time may pass and messages may arrive between a decision and its commit */
#endif
#ifndef REORDERED
#define REORDERED 0           /* 1: two messages of a robot may be on their way, and arrive in any order */
#endif
#ifndef CUTS
#define CUTS 1                /* a connection is lost */
#endif
#ifndef BYES
#define BYES 0                /* a robot says that it works on nothing, and ends */
#endif
#ifndef SECONDS
#define SECONDS 0             /* a second program with the same robot id says hello while the first works */
#endif
#ifndef REPEATS
#define REPEATS 0             /* a robot's message arrives twice */
#endif
#ifndef HANDOVERS
#define HANDOVERS 1           /* the owner dies or is replaced */
#endif
#ifndef SKEW
#define SKEW 1                /* ... by one whose clock is ahead */
#endif
#ifndef RELEASES
#define RELEASES 0            /* an operator releases a task */
#endif
#ifndef CANCELS
#define CANCELS 0             /* somebody cancels a task */
#endif
#ifndef LIVE
#define LIVE 0                /* 1: delays and losses are faults as well; when they are used up, every duty is done in its tick */
#endif

#if POLICY == REQUEUE
#define STOP_AFTER (N * W)
#elif POLICY == LOST_WAIT
#define STOP_AFTER (N * W + WAIT)
#endif
#if POLICY == NEVER
#define DEADLINE 100
#define HOLD FOREVER
#define AFTER_LOSS FOREVER
#define AFTER_FORGOTTEN FOREVER
#else
#define DEADLINE (STOP_AFTER - LATEST)
#define HOLD (STOP_AFTER + HOLD_WINDOWS * W)
#define AFTER_LOSS WAIT
#define AFTER_FORGOTTEN ((N + HOLD_WINDOWS) * W + WAIT)
#endif
#define FOREVER 255
#define NOT_ASKED 255
#define DUE_MAX (N + 1)
#define LOG 0
#define MEMORY 1
#define NOBODY 9

mtype = {
  /* task states */ NONE, WAITING, ASSIGNED, RUNNING, LOST, COMPLETED, CANCELLED,
  /* events */ TaskSubmitted, TaskAssigned, AssignmentWithdrawn, LeaseStarted, TaskCompleted, AttemptStopped, WindowClosed,
  LeaseExpired, LeaseResumed, LostWaitEnded, TaskReleased, TaskCancelled, CancelRequested, HoldEnded, ReportedLate,
  RobotSessionStarted, RobotSessionEnded, Noted,
  /* messages of robots */ hello, accept, heartbeat, complete, stopped, own_deadline, bye,
  /* messages to robots */ welcome, assign, ack, refused, stop,
  /* phases of an attempt at its robot */ FREE, ACCEPTING, WORKING, DONE, STOPPED, PAST_DEADLINE,
  /* phases of an owner */ AWAY, FENCED, READ, DECIDING,
  /* connections */ CUT, GREETING, CONNECTED,
  /* how an attempt ended */ NOT_YET, BY_EXPIRY, BY_ROBOT, BY_WITHDRAWAL
};

/* Pool state: what a fold of `events` gives (LOG), and the owner's own (MEMORY). */
typedef Pool {
  mtype st[TASKS]; byte attempt[TASKS]; byte robot[TASKS]; byte missed[TASKS]; byte from[TASKS];
  mtype last_end[TASKS]; short completes[TASKS]; bit twice[TASKS]; bit cancel_asked[TASKS]; bit has_stopped[TASKS];
  byte epoch[2]; byte lapses[2];
  byte hold_task; byte hold_attempt; byte hold_robot
};
Pool P[2];

/* Timers, as ticks that are left: of the accept-by and the wait of each task, of the one hold. */
byte accept_left[TASKS]; byte wait_left[TASKS]; byte hold_left;

/* The owner: windows due, windows and timers settled by the barrier, what was heard (1 + window, oldest unclosed = 0). */
mtype owner = DECIDING;
byte due, settled, barrier = NOT_ASKED, heard[TASKS];
bit settled_accept[TASKS], settled_wait[TASKS], settled_hold;
/* Its batch: one event with its outcome, not yet committed; `age` in ticks, `at_window` the windows due when decided. */
mtype event; byte e_task, e_attempt, e_robot, e_epoch, age, at_window; bit e_input;
mtype out; byte o_robot, o_task, o_attempt;
/* A former owner's batch that it still wants to commit. */
mtype z_event; byte z_task, z_attempt, z_robot; bit z_fenced;
bit acknowledged[TASKS];

/* Topics and wires: (type, robot, epoch, task, attempt). */
chan reports = [UNREAD] of { mtype, byte, byte, byte, byte };
typedef Message { mtype type; byte epoch; byte task; byte attempt };
typedef Wire { Message m[2] };
Wire up[2];                                        /* sent by a robot, not yet in the log */
chan down0 = [4] of { mtype, byte, byte, byte };   /* outcomes for a robot that its gateway has not read */
chan down1 = [4] of { mtype, byte, byte, byte };
byte lag[2];                                       /* 1 + ticks since the oldest unread `stop` or `superseded`, else 0 */

/* Robots. `since`: ticks since the first sending of the last answered message. */
mtype link[2] = CUT; byte hellos[2]; byte my_epoch[2];
byte my_task[2]; byte my_attempt[2]; mtype phase[2] = FREE; byte since[2]; byte worked[2];
mtype beat_is[2] = NONE; byte beat_age[2];         /* the newest heartbeat: NONE, hello (on its way), ack (in the log) */
bit beaten[2], gone[2];                            /* beaten: a heartbeat was sent in this tick */
bit told[2];                                       /* what is to be said now (hello, accept, final report) is on its way */
bit sent[2];                                       /* the final report was sent once */
bit other[2]; byte other_since[2], other_lag[2];   /* a former program of the same robot id, still at work */
byte second[2]; bit second_told[2];                                   /* the hello of a second program, not yet decided */

byte ticks, faults = FAULTS;
/* Scratch, zero between steps. */
byte k, p, x, ticks_left, v_robot, v_epoch, v_task, v_attempt; mtype v_type; bit forgotten;

#define working(r) ((phase[r] == WORKING) + other[r])
#define held_by(i, t, r) ((P[i].st[t] == ASSIGNED || P[i].st[t] == RUNNING || P[i].st[t] == LOST) && P[i].robot[t] == r)
#define holds_target(i, t) (P[i].st[t] == ASSIGNED || P[i].st[t] == RUNNING || P[i].st[t] == LOST)
#define runs(t) (P[MEMORY].st[t] == RUNNING)
#define anything_runs (runs(0) || runs(TASKS - 1))
#if TASKS == 1
#define slot_used(i, r) (held_by(i, 0, r) || (P[i].hold_attempt && P[i].hold_robot == r))
#define target_free(i) (!holds_target(i, 0) && !P[i].hold_attempt)
#define ended (P[LOG].st[0] == COMPLETED || P[LOG].st[0] == CANCELLED)
#else
#define slot_used(i, r) (held_by(i, 0, r) || held_by(i, 1, r) || (P[i].hold_attempt && P[i].hold_robot == r))
#define target_free(i) (!holds_target(i, 0) && !holds_target(i, 1) && !P[i].hold_attempt)
#define ended ((P[LOG].st[0] == COMPLETED || P[LOG].st[0] == CANCELLED) && (P[LOG].st[1] == COMPLETED || P[LOG].st[1] == CANCELLED))
#endif
#define current(t, a, r) (P[MEMORY].attempt[t] == a && P[MEMORY].robot[t] == r && held_by(MEMORY, t, r))
#define less(a, b) ((a) > (b) -> (a) - (b) : 0)
#define fresh(r) (!FRESH_OUTCOMES || lag[r] <= W + 1)

/* ---- properties ---- */
bit two_robots_never_work_on_one_target = 1, events_follow_the_table = 1, done_twice_is_said = 1, acknowledged_is_kept = 1;

inline check_exclusion() {
  two_robots_never_work_on_one_target = (working(0) + working(1) <= 1);
  assert(two_robots_never_work_on_one_target)
}

/* The table of allowed (from, event, to): what is committed must follow it on the log, whoever commits. */
inline check_table(T) {
  if
  :: event == TaskSubmitted -> events_follow_the_table = (P[LOG].st[T] == NONE)
  :: event == TaskAssigned -> events_follow_the_table = (P[LOG].st[T] == WAITING && e_attempt == P[LOG].attempt[T] + 1 && target_free(LOG))
  :: event == AssignmentWithdrawn || event == LeaseStarted -> events_follow_the_table = (P[LOG].st[T] == ASSIGNED && e_attempt == P[LOG].attempt[T])
  :: event == TaskCompleted -> events_follow_the_table = ((P[LOG].st[T] == RUNNING || P[LOG].st[T] == LOST || P[LOG].st[T] == WAITING) && e_attempt == P[LOG].attempt[T])
  :: event == AttemptStopped -> events_follow_the_table = ((P[LOG].st[T] == RUNNING || P[LOG].st[T] == LOST) && e_attempt == P[LOG].attempt[T])
  :: event == LeaseExpired -> events_follow_the_table = (P[LOG].st[T] == RUNNING && e_attempt == P[LOG].attempt[T])
  :: event == LeaseResumed || event == LostWaitEnded -> events_follow_the_table = (P[LOG].st[T] == LOST && e_attempt == P[LOG].attempt[T])
  :: event == TaskReleased -> events_follow_the_table = (holds_target(LOG, T) && e_attempt == P[LOG].attempt[T])
  :: event == TaskCancelled -> events_follow_the_table = (P[LOG].st[T] == WAITING || P[LOG].st[T] == ASSIGNED || P[LOG].st[T] == LOST)
  :: event == HoldEnded -> events_follow_the_table = (P[LOG].hold_attempt == e_attempt)
  :: else
  fi;
  assert(events_follow_the_table)
}

inline check_twice() {
  for (k : 0 .. TASKS - 1) {
    if
    :: !P[LOG].twice[k] && (P[LOG].completes[k] & (P[LOG].completes[k] - 1)) -> done_twice_is_said = 0
    :: else
    fi
  }
  assert(done_twice_is_said)
}

/* ---- evolve ---- */
inline keep_held(T, LEFT) {
  P[p].hold_task = T; P[p].hold_attempt = P[p].attempt[T]; P[p].hold_robot = P[p].robot[T];
  hold_left = LEFT
}

inline end_hold() { P[p].hold_task = 0; P[p].hold_attempt = 0; P[p].hold_robot = 0; hold_left = 0 }

inline leave(T, TO, HOW) {
  P[p].st[T] = TO; P[p].last_end[T] = HOW;
  P[p].missed[T] = 0; P[p].from[T] = 0; P[p].has_stopped[T] = 0; heard[T] = 0;
  accept_left[T] = 0; wait_left[T] = 0
}

/* What follows from a loss: the cancel before the policy; what is not sure to have stopped stays held. */
inline lose(TASK) {
  if
  :: P[p].cancel_asked[TASK] ->
    if
    :: forgotten && HELD_WHEN_FORGOTTEN -> ticks_left = less(HOLD, age); keep_held(TASK, ticks_left)
    :: !forgotten && POLICY != REQUEUE -> ticks_left = (HELD_IN_FULL -> less(HOLD, age) : less(AFTER_LOSS, age)); keep_held(TASK, ticks_left)
    :: else
    fi;
    leave(TASK, CANCELLED, BY_EXPIRY)
  :: else ->
    if
    :: POLICY == REQUEUE ->
      if
      :: forgotten && HELD_WHEN_FORGOTTEN -> ticks_left = less(HOLD, age); keep_held(TASK, ticks_left)
      :: else
      fi;
      leave(TASK, WAITING, BY_EXPIRY)
    :: else ->
      leave(TASK, LOST, NOT_YET);
      wait_left[TASK] = (forgotten -> less(AFTER_FORGOTTEN, age) : less(AFTER_LOSS, age));
      settled_wait[TASK] = 0
    fi
  fi
}

inline start_lease(T) {
  P[p].st[T] = RUNNING; accept_left[T] = 0; wait_left[T] = 0; P[p].missed[T] = 0;
  P[p].from[T] = at_window + 1;
  heard[T] = at_window + 1
}

inline evolve_robot() {
  if
  :: event == RobotSessionStarted ->  /* names (e_task, e_attempt); attempt 0: nothing */
    P[p].epoch[e_robot] = e_epoch; P[p].lapses[e_robot] = 0;
    for (k : 0 .. TASKS - 1) {
      if
      :: held_by(p, k, e_robot) && e_attempt == P[p].attempt[k] && e_task == k && P[p].st[k] == LOST && !P[p].has_stopped[k] -> start_lease(k)
      :: held_by(p, k, e_robot) && e_attempt == P[p].attempt[k] && e_task == k && P[p].st[k] == RUNNING -> heard[k] = at_window + 1
      :: held_by(p, k, e_robot) && !(e_attempt == P[p].attempt[k] && e_task == k) && P[p].st[k] == RUNNING -> forgotten = 1; lose(k)
      :: else
      fi
    }
  :: event == RobotSessionEnded ->
    P[p].epoch[e_robot] = 0;
    for (k : 0 .. TASKS - 1) {
      if
      :: held_by(p, k, e_robot) && P[p].cancel_asked[k] -> leave(k, CANCELLED, BY_ROBOT)
      :: held_by(p, k, e_robot) && !P[p].cancel_asked[k] && P[p].st[k] == ASSIGNED -> leave(k, WAITING, BY_WITHDRAWAL)
      :: held_by(p, k, e_robot) && !P[p].cancel_asked[k] && P[p].st[k] != ASSIGNED -> leave(k, WAITING, BY_ROBOT)
      :: else
      fi
    }
    if
    :: P[p].hold_attempt && P[p].hold_robot == e_robot -> end_hold()
    :: else
    fi
  :: else
  fi
}

inline evolve_task() {
  if
  :: event == TaskSubmitted -> P[p].st[e_task] = WAITING
  :: event == TaskAssigned ->
    P[p].st[e_task] = ASSIGNED; P[p].attempt[e_task] = e_attempt; P[p].robot[e_task] = e_robot;
    P[p].last_end[e_task] = NOT_YET;
    accept_left[e_task] = less(ACCEPT, age); settled_accept[e_task] = 0
  :: event == AssignmentWithdrawn ->
    P[p].lapses[e_robot] = P[p].lapses[e_robot] + 1;
    leave(e_task, WAITING, BY_WITHDRAWAL)
  :: event == LeaseStarted -> P[p].lapses[e_robot] = 0; start_lease(e_task)
  :: event == LeaseResumed -> start_lease(e_task)
  :: event == TaskCompleted ->
    P[p].completes[e_task] = P[p].completes[e_task] | (1 << e_attempt);
    leave(e_task, COMPLETED, BY_ROBOT)
  :: event == ReportedLate ->
    if
    :: SAYS_TWICE && (P[p].attempt[e_task] > e_attempt || P[p].st[e_task] == COMPLETED) -> P[p].twice[e_task] = 1
    :: else
    fi;
    P[p].completes[e_task] = P[p].completes[e_task] | (1 << e_attempt)
  :: event == AttemptStopped ->       /* e_epoch: 1 after the own deadline */
    if
    :: P[p].cancel_asked[e_task] -> leave(e_task, CANCELLED, BY_ROBOT)
    :: !P[p].cancel_asked[e_task] && e_epoch && POLICY != REQUEUE && P[p].st[e_task] == RUNNING ->
      leave(e_task, LOST, NOT_YET); P[p].has_stopped[e_task] = 1;
      wait_left[e_task] = less(AFTER_LOSS, age); settled_wait[e_task] = 0
    :: else -> leave(e_task, WAITING, BY_ROBOT)
    fi
  :: event == WindowClosed ->
    forgotten = 0;
    for (k : 0 .. TASKS - 1) {
      if
      :: P[p].st[k] == RUNNING ->
        if
        :: P[p].from[k] > 0 -> P[p].from[k] = P[p].from[k] - 1
        :: P[p].from[k] == 0 && heard[k] == 0 -> P[p].missed[k] = P[p].missed[k] + 1
        :: else -> P[p].missed[k] = 0
        fi;
        if
        :: P[p].missed[k] == N -> lose(k)
        :: else
        fi
      :: else
      fi
    }
  :: event == LeaseExpired -> forgotten = 0; lose(e_task)
  :: event == LostWaitEnded -> leave(e_task, WAITING, BY_EXPIRY)
  :: event == TaskReleased ->
    if
    :: P[p].st[e_task] == ASSIGNED -> leave(e_task, WAITING, BY_WITHDRAWAL)
    :: else ->
      if
      :: HELD_AFTER_RELEASE -> ticks_left = less(HOLD, age); keep_held(e_task, ticks_left)
      :: else
      fi;
      if
      :: P[p].cancel_asked[e_task] -> leave(e_task, CANCELLED, BY_EXPIRY)
      :: else -> leave(e_task, WAITING, BY_EXPIRY)
      fi
    fi
  :: event == TaskCancelled ->
    if
    :: P[p].st[e_task] == LOST && HELD_WHEN_CANCELLED -> ticks_left = (p == LOG -> (HELD_IN_FULL -> less(HOLD, age) : wait_left[e_task]) : ticks_left); keep_held(e_task, ticks_left)
    :: else
    fi;
    leave(e_task, CANCELLED, BY_EXPIRY)
  :: event == CancelRequested -> P[p].cancel_asked[e_task] = 1
  :: event == HoldEnded -> end_hold()
  :: else
  fi
}

/* OwnershipTaken: nothing counts before the first window that begins after it. */
inline reset_counts() {
  for (k : 0 .. TASKS - 1) {
    if
    :: GRACE && P[p].st[k] == RUNNING -> P[p].missed[k] = 0; P[p].from[k] = due + 1
    :: else
    fi
  }
}

inline tell(R, TYPE, E, T, A) {
  if
  :: TYPE == stop && lag[R] -> skip    /* one is unread already */
  :: TYPE != stop || lag[R] == 0 ->
    if
    :: R == 0 -> down0!TYPE, E, T, A
    :: R == 1 -> down1!TYPE, E, T, A
    fi;
    lag[R] = (TYPE == stop -> 1 : lag[R])
  fi
}

#define room_down (len(down0) < 3 && len(down1) < 3)

inline forget_batch() {
  event = 0; e_task = 0; e_attempt = 0; e_robot = 0; e_epoch = 0; e_input = 0; age = 0; at_window = 0;
  out = 0; o_robot = 0; o_task = 0; o_attempt = 0
}

inline forget_time() {
  settled = 0; barrier = NOT_ASKED; settled_hold = 0;
  for (k : 0 .. TASKS - 1) { settled_accept[k] = 0; settled_wait[k] = 0 }
}

inline barrier_done() {
  if
  :: TASKS == 1 && settled == 0 && !settled_hold && !settled_accept[0] && !settled_wait[0] -> barrier = NOT_ASKED
  :: TASKS == 2 && settled == 0 && !settled_hold && !settled_accept[0] && !settled_wait[0] && !settled_accept[TASKS - 1] && !settled_wait[TASKS - 1] -> barrier = NOT_ASKED
  :: else
  fi
}

inline decided(V, T, A, R) { event = V; e_task = T; e_attempt = A; e_robot = R; at_window = due; age = 0 }
inline outcome(O, R, T, A) { out = O; o_robot = R; o_task = T; o_attempt = A }

/* ---- decide: one report ---- */
inline take_report() {
  reports?<v_type, v_robot, v_epoch, v_task, v_attempt>;
  decided(Noted, v_task, v_attempt, v_robot);
  e_input = 1;
  if
  :: v_type == hello ->
    if
    :: v_epoch > P[MEMORY].epoch[v_robot] -> event = RobotSessionStarted; e_epoch = v_epoch; outcome(welcome, v_robot, v_task, v_attempt)
    :: v_epoch == P[MEMORY].epoch[v_robot] -> outcome(welcome, v_robot, v_task, v_attempt)
    :: else
    fi
  :: v_type != hello && EPOCH_CHECK && v_epoch != P[MEMORY].epoch[v_robot] -> skip   /* no_session */
  :: v_type != hello && !(EPOCH_CHECK && v_epoch != P[MEMORY].epoch[v_robot]) ->
    if
    :: v_type == bye -> event = RobotSessionEnded
    :: v_type == accept ->
      if
      :: current(v_task, v_attempt, v_robot) && P[MEMORY].st[v_task] == ASSIGNED -> event = LeaseStarted; outcome(ack, v_robot, v_task, v_attempt)
      :: current(v_task, v_attempt, v_robot) && P[MEMORY].st[v_task] == RUNNING -> heard[v_task] = due + 1; outcome(ack, v_robot, v_task, v_attempt)
      :: current(v_task, v_attempt, v_robot) && P[MEMORY].st[v_task] == LOST && !P[MEMORY].has_stopped[v_task] -> event = LeaseResumed; outcome(ack, v_robot, v_task, v_attempt)
      :: else -> outcome(refused, v_robot, v_task, v_attempt)
      fi
    :: v_type == heartbeat ->
      if
      :: current(v_task, v_attempt, v_robot) && P[MEMORY].st[v_task] == RUNNING -> heard[v_task] = due + 1
      :: current(v_task, v_attempt, v_robot) && P[MEMORY].st[v_task] == LOST && !P[MEMORY].has_stopped[v_task] -> event = LeaseResumed
      :: current(v_task, v_attempt, v_robot) && P[MEMORY].st[v_task] == LOST && P[MEMORY].has_stopped[v_task] -> skip
      :: else -> outcome(stop, v_robot, v_task, v_attempt)
      fi
    :: v_type == complete ->
      if
      :: (current(v_task, v_attempt, v_robot) || (!ATTEMPT_TOKEN && P[MEMORY].st[v_task] == RUNNING)) && P[MEMORY].st[v_task] != ASSIGNED ->
        event = TaskCompleted; outcome(ack, v_robot, v_task, v_attempt)
      :: !current(v_task, v_attempt, v_robot) && (P[MEMORY].completes[v_task] & (1 << v_attempt)) -> outcome(ack, v_robot, v_task, v_attempt)
      :: !current(v_task, v_attempt, v_robot) && !(P[MEMORY].completes[v_task] & (1 << v_attempt)) && ATTEMPT_TOKEN ->
        outcome(ack, v_robot, v_task, v_attempt);
        if
        :: P[MEMORY].st[v_task] == WAITING && P[MEMORY].attempt[v_task] == v_attempt && P[MEMORY].last_end[v_task] == BY_EXPIRY -> event = TaskCompleted
        :: !NEWER_ATTEMPT && P[MEMORY].attempt[v_task] > v_attempt && P[MEMORY].st[v_task] == WAITING -> event = TaskCompleted
        :: !TERMINAL && P[MEMORY].st[v_task] == CANCELLED -> event = TaskCompleted
        :: else -> event = ReportedLate
        fi
      :: else -> outcome(refused, v_robot, v_task, v_attempt)
      fi
    :: v_type == stopped || v_type == own_deadline ->
      outcome(ack, v_robot, v_task, v_attempt);
      if
      :: (current(v_task, v_attempt, v_robot) || (!ATTEMPT_TOKEN && P[MEMORY].st[v_task] == RUNNING)) && P[MEMORY].st[v_task] != ASSIGNED ->
        event = AttemptStopped; e_epoch = (v_type == own_deadline);
        if
        :: !ATTEMPT_TOKEN -> e_attempt = P[MEMORY].attempt[v_task]
        :: else
        fi;
        if
        :: POLICY == NEVER && P[MEMORY].st[v_task] == LOST && v_type == own_deadline -> event = Noted
        :: else
        fi
      :: else
      fi
    fi
  fi;
  v_robot = 0; v_type = 0; v_epoch = 0; v_task = 0; v_attempt = 0
}

/* A hold ends with the final report of its attempt. */
#define ends_hold(i) (e_input && (out == ack) && P[i].hold_attempt && P[i].hold_attempt == e_attempt && P[i].hold_task == e_task && P[i].hold_robot == e_robot)

inline write() {
  if
  :: ends_hold(p) && event != RobotSessionStarted && event != LeaseStarted && event != LeaseResumed -> end_hold()
  :: else
  fi;
  evolve_task();
  evolve_robot()
}

/* A commit that took a whole window: counts begin anew, open waits and holds move on. */
inline outage() {
  for (p : LOG .. MEMORY) { reset_counts() }
      p = 0;
  for (k : 0 .. TASKS - 1) {
    if
    :: MOVED_WAITS && P[LOG].st[k] == LOST && wait_left[k] != FOREVER -> wait_left[k] = wait_left[k] + age; settled_wait[k] = 0
    :: else
    fi
  }
  if
  :: MOVED_WAITS && P[LOG].hold_attempt && hold_left != FOREVER -> hold_left = hold_left + age; settled_hold = 0
  :: else
  fi
}

/* The second program's session began: what the first still does goes on beside it, until it hears of that. */
inline supersede(ROBOT) {
  if
  :: phase[ROBOT] == WORKING || (phase[ROBOT] == ACCEPTING && P[LOG].st[my_task[ROBOT]] == RUNNING && P[LOG].attempt[my_task[ROBOT]] == my_attempt[ROBOT]) ->
    other[ROBOT] = 1; other_since[ROBOT] = since[ROBOT]; other_lag[ROBOT] = 1
  :: else
  fi;
  clear_program(ROBOT);
  link[ROBOT] = GREETING; my_epoch[ROBOT] = second[ROBOT]; told[ROBOT] = 1; second[ROBOT] = 0; second_told[ROBOT] = 0
}

inline clear_program(R) {
  phase[R] = FREE; my_task[R] = 0; my_attempt[R] = 0; since[R] = 0; worked[R] = 0; sent[R] = 0; told[R] = 0;
  beat_is[R] = NONE; beat_age[R] = 0
}

/* Events, outcome and input position, at once. */
inline commit() {
  check_table(e_task);
  if
  :: e_input -> reports?_, _, _, _, _;
    if
    :: barrier != NOT_ASKED && barrier > 0 -> barrier--
    :: else
    fi
  :: else
  fi;
  if
  :: event == RobotSessionStarted && second[e_robot] == e_epoch -> supersede(e_robot)
  :: else
  fi;
  if
  :: event == WindowClosed ->
    for (x : 0 .. TASKS - 1) {
      if
      :: P[LOG].st[x] == RUNNING && P[LOG].from[x] == 0 && heard[x] == 0 && P[LOG].missed[x] == N - 1 && (POLICY == REQUEUE || P[LOG].cancel_asked[x]) && P[LOG].epoch[P[LOG].robot[x]] ->
        tell(P[LOG].robot[x], stop, P[LOG].epoch[P[LOG].robot[x]], x, P[LOG].attempt[x])
      :: else
      fi
    }
    x = 0
  :: (event == TaskReleased || (event == TaskCancelled && P[LOG].st[e_task] != WAITING)) && P[LOG].epoch[e_robot] -> outcome(stop, e_robot, e_task, e_attempt)
  :: else
  fi;
  for (p : LOG .. MEMORY) { write() }
  p = 0;
  if
  :: event == WindowClosed ->
    due--; settled--;
    for (k : 0 .. TASKS - 1) {
      if
      :: heard[k] > 0 -> heard[k] = heard[k] - 1
      :: else
      fi
    }
  :: event == AssignmentWithdrawn -> settled_accept[e_task] = 0
  :: event == LostWaitEnded -> settled_wait[e_task] = 0
  :: event == HoldEnded -> settled_hold = 0
  :: else
  fi;
  if
  :: !anything_runs -> due = 0; settled = 0
  :: else
  fi;
  if
  :: barrier == 0 -> barrier_done()
  :: else
  fi;
  if
  :: event == TaskSubmitted -> acknowledged[e_task] = 1
  :: event == TaskAssigned -> tell(e_robot, assign, P[LOG].epoch[e_robot], e_task, e_attempt)
  :: out == welcome ->  /* the verdict: 1 run or accept, 0 stop */
    v_attempt = 0;
    for (k : 0 .. TASKS - 1) {
      if
      :: k == o_task && o_attempt && held_by(LOG, k, o_robot) && P[LOG].attempt[k] == o_attempt && !P[LOG].has_stopped[k] -> v_attempt = 1
      :: else
      fi
    }
    tell(o_robot, welcome, P[LOG].epoch[o_robot], 0, v_attempt);
    v_attempt = 0;
    for (k : 0 .. TASKS - 1) {
      if
      :: held_by(LOG, k, o_robot) && P[LOG].st[k] == ASSIGNED -> tell(o_robot, assign, P[LOG].epoch[o_robot], k, P[LOG].attempt[k])
      :: else
      fi
    }
  :: out != 0 && out != welcome && P[LOG].epoch[o_robot] -> tell(o_robot, out, P[LOG].epoch[o_robot], o_task, o_attempt)
  :: else
  fi;
  if
  :: age >= W -> outage()
  :: else
  fi;
  check_twice(); k = 0; ticks_left = 0; forgotten = 0;
  forget_batch()
}

/* ---- the owner ---- */
#define time_is_due (due > 0 || (P[MEMORY].hold_attempt && hold_left == 0) || timer_is_due(0) || timer_is_due(TASKS - 1))
#define timer_is_due(t) ((ACCEPT_BY && P[MEMORY].st[t] == ASSIGNED && accept_left[t] == 0) || (P[MEMORY].st[t] == LOST && wait_left[t] == 0))
#define may_assign(t, r) (owner == DECIDING && !event && P[MEMORY].st[t] == WAITING && P[MEMORY].attempt[t] < ATTEMPTS && (FAULTY == 2 || (r == 0 && t == 0) || (r == 1 && (t == 1 || P[MEMORY].attempt[t] > 0))) && target_free(MEMORY) && \
  P[MEMORY].epoch[r] && !slot_used(MEMORY, r) && (!DOES_NOT_ACCEPT || P[MEMORY].lapses[r] < LAPSES_MAX))

inline answer_early(T) { acknowledged[T] = !ANSWER_AFTER_COMMIT }

inline act_accept(TASK) {
  if
  :: P[MEMORY].st[TASK] == ASSIGNED && accept_left[TASK] == 0 -> decided(AssignmentWithdrawn, TASK, P[MEMORY].attempt[TASK], P[MEMORY].robot[TASK])
  :: else -> settled_accept[TASK] = 0; barrier_done()
  fi
}

inline act_wait(TASK) {
  if
  :: P[MEMORY].st[TASK] == LOST && wait_left[TASK] == 0 -> decided(LostWaitEnded, TASK, P[MEMORY].attempt[TASK], P[MEMORY].robot[TASK])
  :: else -> settled_wait[TASK] = 0; barrier_done()
  fi
}

proctype Owner() {
  do
  /* input */
  :: d_step { owner == DECIDING && !event && nempty(reports) -> take_report() }
  :: d_step { owner == DECIDING && !event && P[MEMORY].st[0] == NONE -> decided(TaskSubmitted, 0, 0, 0); answer_early(0) }
#if TASKS == 2
  :: d_step { owner == DECIDING && !event && P[MEMORY].st[1] == NONE -> decided(TaskSubmitted, 1, 0, 0); answer_early(1) }
#endif
  /* time */
  :: d_step { owner == DECIDING && !event && barrier == NOT_ASKED && time_is_due && (SILENCE_ACTS || nempty(reports)) ->
      barrier = (INPUT_BEFORE_TIME -> len(reports) : 0);
      settled = due;
      settled_hold = (P[MEMORY].hold_attempt && hold_left == 0);
      for (k : 0 .. TASKS - 1) {
        settled_accept[k] = (ACCEPT_BY && P[MEMORY].st[k] == ASSIGNED && accept_left[k] == 0);
        settled_wait[k] = (P[MEMORY].st[k] == LOST && wait_left[k] == 0)
      }
      k = 0
    }
  :: d_step { owner == DECIDING && !event && barrier == 0 && settled_accept[0] -> act_accept(0) }
  :: d_step { owner == DECIDING && !event && barrier == 0 && settled_wait[0] -> act_wait(0) }
#if TASKS == 2
  :: d_step { owner == DECIDING && !event && barrier == 0 && settled_accept[1] -> act_accept(1) }
  :: d_step { owner == DECIDING && !event && barrier == 0 && settled_wait[1] -> act_wait(1) }
#endif
  :: d_step { owner == DECIDING && !event && barrier == 0 && settled_hold ->
      if
      :: P[MEMORY].hold_attempt && hold_left == 0 -> decided(HoldEnded, P[MEMORY].hold_task, P[MEMORY].hold_attempt, P[MEMORY].hold_robot)
      :: else -> settled_hold = 0; barrier_done()
      fi
    }
  :: d_step { owner == DECIDING && !event && barrier == 0 && settled > 0 && !settled_hold && !settled_accept[0] && !settled_wait[0] && !settled_accept[TASKS - 1] && !settled_wait[TASKS - 1] ->
      decided(WindowClosed, 0, 0, 0)
    }
  /* dispatch */
  :: d_step { may_assign(0, 0) -> decided(TaskAssigned, 0, P[MEMORY].attempt[0] + 1, 0) }
  :: d_step { may_assign(0, 1) -> decided(TaskAssigned, 0, P[MEMORY].attempt[0] + 1, 1) }
#if TASKS == 2
  :: d_step { may_assign(1, 0) -> decided(TaskAssigned, 1, P[MEMORY].attempt[1] + 1, 0) }
  :: d_step { may_assign(1, 1) -> decided(TaskAssigned, 1, P[MEMORY].attempt[1] + 1, 1) }
#endif
  /* operators */
#if RELEASES
  :: d_step { owner == DECIDING && !event && faults && (holds_target(MEMORY, 0)) ->
      faults--; decided(TaskReleased, 0, P[MEMORY].attempt[0], P[MEMORY].robot[0]); printf("operator releases task 0\n") }
#endif
#if CANCELS
  :: d_step { owner == DECIDING && !event && faults && (P[MEMORY].st[0] == WAITING || holds_target(MEMORY, 0)) && !P[MEMORY].cancel_asked[0] ->
      faults--; printf("somebody cancels task 0\n");
      if
      :: P[MEMORY].st[0] == RUNNING -> decided(CancelRequested, 0, P[MEMORY].attempt[0], P[MEMORY].robot[0])
      :: else -> decided(TaskCancelled, 0, P[MEMORY].attempt[0], P[MEMORY].robot[0])
      fi }
#endif
  /* commit */
  :: d_step { owner == DECIDING && event && room_down ->
      printf("owner commits %e (task %d attempt %d robot %d)\n", event, e_task, e_attempt, e_robot);
      commit();
      check_exclusion() }
  od
}

/* ---- hand-over ---- */

/* The former owner, where it lives on, keeps its batch or decides another one on what it knows. */
inline former_keeps() { z_event = event; z_task = e_task; z_attempt = e_attempt; z_robot = e_robot }
inline former_decides(V, T, A, R) { z_event = V; z_task = T; z_attempt = A; z_robot = R }

inline memory_becomes(SOURCE) {
  for (k : 0 .. TASKS - 1) {
    P[MEMORY].st[k] = P[SOURCE].st[k]; P[MEMORY].attempt[k] = P[SOURCE].attempt[k]; P[MEMORY].robot[k] = P[SOURCE].robot[k];
    P[MEMORY].missed[k] = P[SOURCE].missed[k]; P[MEMORY].from[k] = P[SOURCE].from[k]; P[MEMORY].last_end[k] = P[SOURCE].last_end[k];
    P[MEMORY].completes[k] = P[SOURCE].completes[k]; P[MEMORY].twice[k] = P[SOURCE].twice[k];
    P[MEMORY].cancel_asked[k] = P[SOURCE].cancel_asked[k]; P[MEMORY].has_stopped[k] = P[SOURCE].has_stopped[k]
  }
  for (k : 0 .. 1) { P[MEMORY].epoch[k] = P[SOURCE].epoch[k]; P[MEMORY].lapses[k] = P[SOURCE].lapses[k] }
  P[MEMORY].hold_task = P[SOURCE].hold_task; P[MEMORY].hold_attempt = P[SOURCE].hold_attempt; P[MEMORY].hold_robot = P[SOURCE].hold_robot;
  k = 0
}

inline leaves_office() {
  faults--;
  forget_batch(); forget_time(); due = 0;
  for (k : 0 .. TASKS - 1) { heard[k] = 0 }
  k = 0;
  if
  :: FENCE_BEFORE_READ -> owner = FENCED; z_fenced = 1
  :: else -> owner = READ; z_fenced = 0; memory_becomes(LOG)
  fi
}

#define may_change (owner == DECIDING && faults && !z_event)

proctype Seat() {
  do
#if HANDOVERS
  :: d_step { may_change -> printf("the owner dies\n"); leaves_office() }
  :: d_step { may_change && event -> printf("another owner takes over; the former keeps its batch (%e)\n", event); former_keeps(); leaves_office() }
  :: d_step { may_change && !event && P[MEMORY].st[0] == RUNNING -> printf("another owner takes over; the former ends the lease by itself\n");
      former_decides(LeaseExpired, 0, P[MEMORY].attempt[0], P[MEMORY].robot[0]); leaves_office() }
  :: d_step { may_assign(0, 0) && may_change -> printf("another owner takes over; the former assigns to robot 0\n");
      former_decides(TaskAssigned, 0, P[MEMORY].attempt[0] + 1, 0); leaves_office() }
  :: d_step { may_assign(0, 1) && may_change -> printf("another owner takes over; the former assigns to robot 1\n");
      former_decides(TaskAssigned, 0, P[MEMORY].attempt[0] + 1, 1); leaves_office() }
  :: d_step { owner == FENCED && FENCE_BEFORE_READ -> owner = READ; memory_becomes(LOG) }
  :: d_step { owner == READ && !FENCE_BEFORE_READ && !z_fenced -> z_fenced = 1 }
  /* OwnershipTaken */
  :: d_step { owner == READ && z_fenced -> printf("OwnershipTaken\n"); owner = DECIDING; due = 0;
      for (p : LOG .. MEMORY) { reset_counts() }
      p = 0; k = 0; z_fenced = (z_event != 0) }
#if SKEW
  :: d_step { owner == READ && z_fenced && !MOVED_WAITS -> printf("OwnershipTaken, by a clock that is ahead\n"); owner = DECIDING; due = 0;
      for (p : LOG .. MEMORY) { reset_counts() }
      p = 0; z_fenced = (z_event != 0);
      for (k : 0 .. TASKS - 1) { accept_left[k] = 0; wait_left[k] = (wait_left[k] == FOREVER -> FOREVER : 0) }
      k = 0;
      hold_left = (hold_left == FOREVER -> FOREVER : 0) }
#endif
  /* The former owner commits, or is refused. */
  :: d_step { z_event && z_fenced && FENCING -> printf("the former owner is fenced\n"); former_decides(0, 0, 0, 0);
      z_fenced = (owner != DECIDING) }
  :: d_step { z_event && !event && room_down && !(z_fenced && FENCING) ->
      printf("the former owner commits %e\n", z_event);
      event = z_event; e_task = z_task; e_attempt = z_attempt; e_robot = z_robot;
      check_table(e_task);
      if
      :: event == TaskAssigned -> tell(e_robot, assign, P[LOG].epoch[e_robot], e_task, e_attempt)
      :: else
      fi;
      p = LOG; write(); k = 0; ticks_left = 0; forgotten = 0;
      forget_batch(); former_decides(0, 0, 0, 0); z_fenced = (owner != DECIDING && z_fenced);
      check_exclusion() }
#endif
  :: d_step { acknowledged[0] && owner != DECIDING && P[LOG].st[0] == NONE -> acknowledged_is_kept = 0; assert(acknowledged_is_kept) }
  od
}

/* ---- robots ---- */
#define room_up(r) (up[r].m[REORDERED].type == 0)

inline put_up(R, V, E, T, A) {
  if
  :: up[R].m[0].type == 0 -> x = 0
  :: else -> x = 1
  fi;
  up[R].m[x].type = V; up[R].m[x].epoch = E; up[R].m[x].task = T; up[R].m[x].attempt = A;
  x = 0
}

inline take_up(R, WHICH) {
  if
  :: WHICH == 0 -> up[R].m[0].type = up[R].m[1].type; up[R].m[0].epoch = up[R].m[1].epoch; up[R].m[0].task = up[R].m[1].task; up[R].m[0].attempt = up[R].m[1].attempt
  :: else
  fi;
  up[R].m[1].type = 0; up[R].m[1].epoch = 0; up[R].m[1].task = 0; up[R].m[1].attempt = 0
}

inline begin_work(R) { phase[R] = WORKING; told[R] = 0; check_exclusion() }

inline end_work(R, HOW) { phase[R] = HOW; told[R] = 0; worked[R] = 0; since[R] = 0; sent[R] = 0 }

/* What a gateway read for this robot. */
inline receive(ROBOT) {
  if
  :: v_type == welcome && link[ROBOT] == GREETING && v_epoch == my_epoch[ROBOT] ->
    link[ROBOT] = CONNECTED; told[ROBOT] = 0; beat_is[ROBOT] = NONE; beat_age[ROBOT] = 0;
    if
    :: !v_attempt && phase[ROBOT] == WORKING -> end_work(ROBOT, STOPPED)
    :: !v_attempt && phase[ROBOT] == ACCEPTING -> clear_program(ROBOT)
    :: else
    fi
  :: v_type != welcome && link[ROBOT] == CONNECTED && v_epoch == my_epoch[ROBOT] ->
    if
    :: v_type == assign && phase[ROBOT] == FREE ->
      phase[ROBOT] = ACCEPTING; told[ROBOT] = 0; my_task[ROBOT] = v_task; my_attempt[ROBOT] = v_attempt; since[ROBOT] = 0;
      if
      :: !START_AFTER_ACK -> begin_work(ROBOT)
      :: else
      fi
    :: v_type == ack && v_task == my_task[ROBOT] && v_attempt == my_attempt[ROBOT] && phase[ROBOT] == ACCEPTING ->
      if
      :: since[ROBOT] >= DEADLINE && LATE_ACK_STARTS_NOTHING -> end_work(ROBOT, PAST_DEADLINE)
      :: else -> begin_work(ROBOT)
      fi
    :: v_type == ack && v_task == my_task[ROBOT] && v_attempt == my_attempt[ROBOT] && (phase[ROBOT] == DONE || phase[ROBOT] == STOPPED || phase[ROBOT] == PAST_DEADLINE) ->
      clear_program(ROBOT)
    :: v_type == refused && v_task == my_task[ROBOT] && v_attempt == my_attempt[ROBOT] && phase[ROBOT] != WORKING -> clear_program(ROBOT)
    :: v_type == stop && v_task == my_task[ROBOT] && v_attempt == my_attempt[ROBOT] && phase[ROBOT] == WORKING -> end_work(ROBOT, STOPPED)
    :: else
    fi
  :: else
  fi;
  if
  :: v_type == stop -> lag[ROBOT] = 0
  :: else
  fi;
  v_type = 0; v_epoch = 0; v_task = 0; v_attempt = 0
}

#define ended_here(r) (phase[r] == DONE || phase[r] == STOPPED || phase[r] == PAST_DEADLINE)

proctype Robot(byte r) provided (LATENCY || !event) {
  do
  /* sessions */
  :: d_step { link[r] == CUT && !gone[r] && hellos[r] < HELLOS && room_up(r) && !second[r] ->
      hellos[r] = hellos[r] + 1; my_epoch[r] = hellos[r]; link[r] = GREETING; told[r] = 1;
      printf("robot %d: hello %d names attempt %d\n", r, hellos[r], my_attempt[r]);
      put_up(r, hello, my_epoch[r], my_task[r], my_attempt[r]) }
  :: d_step { link[r] == GREETING && !told[r] && room_up(r) && !second[r] ->
      told[r] = 1; put_up(r, hello, my_epoch[r], my_task[r], my_attempt[r]) }
#if CUTS
  :: d_step { link[r] != CUT && faults && r < FAULTY && !second[r] -> faults--; printf("robot %d: its connection is cut\n", r); link[r] = CUT; told[r] = 0; beat_is[r] = NONE; beat_age[r] = 0 }
#endif
#if CRASHES
  :: d_step { link[r] != CUT && faults && r < FAULTY && !second[r] -> faults--; printf("robot %d: its program dies\n", r); link[r] = CUT; clear_program(r) }
#endif
#if DEATHS
  :: d_step { r == 1 && !gone[r] && faults -> faults--; printf("robot %d: dies for ever\n", r); link[r] = CUT; clear_program(r); gone[r] = 1 }
#endif
#if SECONDS
  :: d_step { link[r] == CONNECTED && faults && r < FAULTY && hellos[r] < HELLOS && room_up(r) && !second[r] && !other[r] ->
      faults--; printf("robot %d: a second program says hello\n", r);
      hellos[r] = hellos[r] + 1; second[r] = hellos[r]; second_told[r] = 1; put_up(r, hello, second[r], 0, 0) }
  :: d_step { second[r] && !second_told[r] && room_up(r) -> second_told[r] = 1; put_up(r, hello, second[r], 0, 0) }
  /* The first program: its gateway answers it until it reads that another took over; then it ends. */
  :: d_step { other[r] && other_lag[r] <= (FRESH_OUTCOMES -> W + 1 : 200) && other_since[r] > 0 -> other_since[r] = 0 }
  :: d_step { other[r] -> other[r] = 0; other_since[r] = 0; other_lag[r] = 0 }
#endif
#if BYES
  :: d_step { link[r] == CONNECTED && phase[r] == FREE && faults && r < FAULTY && room_up(r) && !second[r] ->
      faults--; printf("robot %d: bye\n", r); put_up(r, bye, my_epoch[r], 0, 0); link[r] = CUT; told[r] = 0 }
#endif
  /* an attempt */
  :: d_step { link[r] == CONNECTED && (phase[r] == ACCEPTING || (phase[r] == WORKING && !START_AFTER_ACK)) && !told[r] && room_up(r) ->
      told[r] = 1; put_up(r, accept, my_epoch[r], my_task[r], my_attempt[r]) }
  :: d_step { link[r] == CONNECTED && (phase[r] == WORKING || (LIVE && ended_here(r))) && (r < FAULTY || LIVE) && !beaten[r] && beat_is[r] != hello && room_up(r) ->
      beaten[r] = 1; beat_is[r] = hello; beat_age[r] = 0; put_up(r, heartbeat, my_epoch[r], my_task[r], my_attempt[r]) }
  :: d_step { link[r] == CONNECTED && phase[r] == WORKING && (beat_is[r] == ack || (!ANSWER_AFTER_LOG && beat_is[r] == hello)) && fresh(r) ->
      printf("robot %d: a heartbeat sent %d ticks ago is answered\n", r, beat_age[r]);
      since[r] = (FROM_SENDING -> (beat_age[r] < since[r] -> beat_age[r] : since[r]) : 0); beat_is[r] = NONE; beat_age[r] = 0 }
  :: d_step { phase[r] == WORKING && worked[r] >= WORK -> printf("robot %d: completes attempt %d\n", r, my_attempt[r]); end_work(r, DONE) }
  :: d_step { phase[r] == WORKING && OWN_DEADLINE && since[r] >= DEADLINE -> printf("robot %d: its own deadline\n", r); end_work(r, PAST_DEADLINE) }
  :: d_step { link[r] == CONNECTED && ended_here(r) && !told[r] && room_up(r) && !(sent[r] && !SENT_UNTIL_ACK) ->
      told[r] = 1; sent[r] = 1;
      put_up(r, (phase[r] == DONE -> complete : (phase[r] == STOPPED -> stopped : own_deadline)), my_epoch[r], my_task[r], my_attempt[r]) }
  od
}

/* ---- gateways and wires ---- */
inline append(R, WHICH) {
  v_type = up[R].m[WHICH].type; v_epoch = up[R].m[WHICH].epoch; v_task = up[R].m[WHICH].task; v_attempt = up[R].m[WHICH].attempt;
  printf("in the log: %e of robot %d, epoch %d, attempt %d\n", v_type, R, v_epoch, v_attempt);
  reports!v_type, R, v_epoch, v_task, v_attempt;
  if
  :: v_type == heartbeat && beat_is[R] == hello && v_epoch == my_epoch[R] && link[R] == CONNECTED -> beat_is[R] = ack
  :: else
  fi;
  v_type = 0; v_epoch = 0; v_task = 0; v_attempt = 0
}

inline lost(R, WHICH) {
  if
  :: up[R].m[WHICH].type == heartbeat && beat_is[R] == hello && up[R].m[WHICH].epoch == my_epoch[R] -> beat_is[R] = NONE; beat_age[R] = 0
  :: up[R].m[WHICH].type != heartbeat && up[R].m[WHICH].epoch == my_epoch[R] -> told[R] = 0
  :: up[R].m[WHICH].type == hello && up[R].m[WHICH].epoch == second[R] -> second_told[R] = 0
  :: else
  fi
}

proctype Gateway(byte r) {
  do
  :: d_step { (LATENCY || !event) && up[r].m[0].type && nfull(reports) -> append(r, 0); take_up(r, 0) }
  :: d_step { (LATENCY || !event) && up[r].m[1].type && nfull(reports) && (!LIVE || faults) -> faults = faults - LIVE; append(r, 1); take_up(r, 1) }
  :: d_step { (LATENCY || !event) && up[r].m[0].type && (LIVE -> faults : r < FAULTY) -> faults = faults - LIVE; printf("lost: %e of robot %d\n", up[r].m[0].type, r); lost(r, 0); take_up(r, 0) }
#if REPEATS
  :: d_step { (LATENCY || !event) && up[r].m[0].type && nfull(reports) && faults -> faults--; append(r, 0) }
#endif
  :: d_step { r == 0 && nempty(down0) -> down0?v_type, v_epoch, v_task, v_attempt; printf("robot 0 is told %e\n", v_type); receive(0) }
  :: d_step { r == 1 && nempty(down1) -> down1?v_type, v_epoch, v_task, v_attempt; printf("robot 1 is told %e\n", v_type); receive(1) }
  od
}

/* ---- time ---- */
#define must_stop(r) ((phase[r] == WORKING && OWN_DEADLINE && since[r] >= DEADLINE) || (other[r] && OWN_DEADLINE && other_since[r] >= DEADLINE))
#define up_to(v, most) (v < most -> v + 1 : v)
#define down_to_zero(v) ((v == FOREVER || v == 0) -> v : v - 1)

inline tick() {
  printf("-- tick\n");
  ticks = (ticks + 1) % W;
  if
  :: ticks == 0 && owner == DECIDING && anything_runs -> due = up_to(due, DUE_MAX)
  :: else
  fi;
  for (k : 0 .. TASKS - 1) {
    accept_left[k] = down_to_zero(accept_left[k]); wait_left[k] = down_to_zero(wait_left[k])
  }
  hold_left = down_to_zero(hold_left);
  for (k : 0 .. 1) {
    beaten[k] = 0;
    if
    :: phase[k] == ACCEPTING || phase[k] == WORKING -> since[k] = (POLICY == NEVER -> 0 : up_to(since[k], DEADLINE))
    :: else
    fi;
    if
    :: phase[k] == WORKING -> worked[k] = up_to(worked[k], WORK)
    :: else
    fi;
    if
    :: other[k] -> other_since[k] = up_to(other_since[k], DEADLINE); other_lag[k] = up_to(other_lag[k], W + 2)
    :: else
    fi;
    if
    :: beat_is[k] != NONE -> beat_age[k] = (POLICY == NEVER -> 0 : up_to(beat_age[k], DEADLINE))
    :: else
    fi;
    if
    :: lag[k] -> lag[k] = up_to(lag[k], W + 2)
    :: else
    fi
  }
  k = 0;
  if
  :: event -> age = up_to(age, W + 1)
  :: else
  fi
}

/* With LIVE: every duty that can be done is done before time passes. */
#define robot_has_to(r) ((link[r] == CUT && !gone[r] && hellos[r] < HELLOS) || (link[r] == GREETING && !told[r]) || \
  (phase[r] == WORKING && (worked[r] >= WORK || must_stop(r) || beat_is[r] == ack)) || \
  (link[r] == CONNECTED && (phase[r] == WORKING || ended_here(r)) && !beaten[r]) || \
  (link[r] == CONNECTED && (phase[r] == ACCEPTING || ended_here(r)) && !told[r] && (SENT_UNTIL_ACK || !sent[r])))
#define wires_have(r) (up[r].m[0].type)
#define owner_has_to (owner != DECIDING || event || z_event || len(reports) > 0 || barrier != NOT_ASKED || (time_is_due && SILENCE_ACTS) || \
  P[MEMORY].st[0] == NONE || may_assign(0, 0) || may_assign(0, 1))
#define nothing_to_do (!owner_has_to && !robot_has_to(0) && !robot_has_to(1) && !wires_have(0) && !wires_have(1) && len(down0) == 0 && len(down1) == 0)

proctype Clock() provided (LATENCY || !event) {
  do
#if LIVE
  :: d_step { nothing_to_do -> tick() }
  :: d_step { faults && !must_stop(0) && !must_stop(1) -> faults--; printf("everything is slow\n"); tick() }
#else
  :: d_step { !must_stop(0) && !must_stop(1) -> tick() }
#endif
  od
}

init {
  d_step {
    for (k : 0 .. TASKS - 1) {
      P[LOG].st[k] = (SUBMITTED -> WAITING : NONE); P[MEMORY].st[k] = P[LOG].st[k]; P[LOG].last_end[k] = NOT_YET; P[MEMORY].last_end[k] = NOT_YET
    }
    for (k : 0 .. 1) {
      link[k] = CONNECTED; hellos[k] = 1; my_epoch[k] = 1; P[LOG].epoch[k] = 1; P[MEMORY].epoch[k] = 1
    }
    k = 0
  }
  atomic { run Owner(); run Seat(); run Robot(0); run Robot(1); run Gateway(0); run Gateway(1); run Clock() }
}

#if LIVE
ltl every_task_ends { <> ended }
#endif
