package shared

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/cache/hitmap"
)

const (
	// writtenFor is how long Redis keeps all blocks of a replica that somebody asked for.
	writtenFor = 10 * time.Second
	// askAgain is how long a reader waits for a replica's blocks before it asks anew.
	askAgain = time.Second
	// keysFor is how long the keys of a space outlive its last writer.
	keysFor = time.Minute
	// entriesMax is how many entries of the log are read at a time.
	entriesMax = 1024
	// namesEvery is how many round trips pass between two lists of all names, where
	// not all reports are read each time.
	namesEvery = 20
	// twinsSure is how many reports of another process under our name are no leftover of
	// a process that has ended; one of twinsLogged is logged.
	twinsSure, twinsLogged = 5, 600
	// batchMax is the most changes in a batch, so that LogMax bounds the bytes in Redis.
	batchMax = 2048
	// downAfter is how many failures in a row say that Redis is down.
	downAfter = 5
	// replicasMax bounds the replicas that are known, one slot being our own.
	replicasMax = hitmap.ReplicasMax - 1
)

// trip is what the loop remembers between round trips.
type trip struct {
	space   string
	last    string // id of the last entry read, "" for none
	number  uint64 // of our last batch in this epoch
	epoch   uint64
	sending string // our batch that Redis has not confirmed, "" for none
	changes int    // in it
	reports uint64
	asks    []string // whose blocks are to be asked for
	wanted  bool     // somebody asked for ours
	written time.Time
	trips   uint64
	names   []string // of all other replicas
	next    int      // of names, whose report is read next where not all are
	gone    []string // whose reports are to be deleted
}

// loop makes a round trip in each interval.
func (f *Fleet) loop() {
	defer close(f.ended)
	tick := time.NewTicker(f.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-f.quit:
			return
		case <-tick.C:
		case <-f.wake:
		}
		f.round()
	}
}

// key is a key of the trip's space.
func (t *trip) key(f *Fleet, name string) string {
	return f.o.Prefix + ":siblings:{" + t.space + "}:" + name
}

// prepare brings the trip up to date, and tells whether there is one to make.
func (f *Fleet) prepare() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &f.trip
	if f.space == "" {
		return false
	}
	if f.space != t.space {
		*t = trip{space: f.space, reports: t.reports}
	}
	if f.secret == nil {
		return true
	}
	if f.epoch != t.epoch {
		t.epoch, t.number, t.sending = f.epoch, 0, ""
	}
	if t.sending == "" && (len(f.pending) > 0 || f.fresh || f.gap) {
		t.number++
		if f.gap {
			t.number++ // the reader that misses one asks for all
			f.gap = false
		}
		n := min(len(f.pending), batchMax)
		b := batch{epoch: t.epoch, number: t.number, changes: f.pending[:n]}
		t.sending, t.changes, f.fresh = string(b.append(nil)), n, false
		f.pending = f.pending[:copy(f.pending, f.pending[n:])]
	}
	return true
}

// answers are the commands of a round trip whose replies count.
type answers struct {
	secret  *redis.StringCmd
	sent    *redis.StringCmd
	log     *redis.XStreamSliceCmd
	newest  *redis.XMessageSliceCmd
	loads   *redis.MapStringStringCmd
	some    *redis.SliceCmd
	names   *redis.StringSliceCmd
	asked   []string // of some
	blocks  map[string]*redis.StringCmd
	out     int
	written bool
}

// round makes one round trip.
func (f *Fleet) round() {
	if !f.prepare() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Limit)
	defer cancel()
	var a answers
	done, err := f.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		if f.Secret() == nil {
			f.askSecret(ctx, p, &a)
			return nil
		}
		f.fetch(ctx, p, &a) // first, for a report under our name that is not ours
		f.tell(ctx, p, &a)
		return nil
	})
	if len(done) > 0 { // err is the first that failed, which may be a key that is not there
		i := slices.IndexFunc(done, func(c redis.Cmder) bool { return c.Err() != nil && !errors.Is(c.Err(), redis.Nil) })
		if err = nil; i >= 0 {
			err = done[i].Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Trips++
	f.note(err)
	if a.secret != nil && a.secret.Err() == nil && f.space == f.trip.space {
		f.agree(a.secret.Val())
	}
	if a.log == nil && a.newest == nil {
		return // it was about the secret alone
	}
	f.settle(&a)
	f.hear(&a)
}

// note counts failures, and logs when Redis has failed several times in a row, and when
// it answers again: one slow answer is made up for by the next. f.mu is held.
func (f *Fleet) note(err error) {
	if err == nil {
		if !f.up {
			f.o.Log.Info("siblings: Redis answers again")
		}
		f.up, f.failures = true, 0
		return
	}
	f.counts.Failed++
	if f.failures++; f.failures == downAfter {
		f.up = false
		f.o.Log.Warn("siblings: Redis does not answer as it should; requests stay here until it does", "error", err)
	}
}

func (f *Fleet) askSecret(ctx context.Context, p redis.Pipeliner, a *answers) {
	t := &f.trip
	p.SetNX(ctx, t.key(f, "secret"), rand.Text()+rand.Text(), keysFor)
	a.secret = p.Get(ctx, t.key(f, "secret"))
}

// tell sends what is new here.
func (f *Fleet) tell(ctx context.Context, p redis.Pipeliner, a *answers) {
	t := &f.trip
	f.mu.RLock()
	report, secret := f.report, f.secret
	f.mu.RUnlock()
	if f.o.Secret == nil { // so that it outlives its first owner, and a Redis that lost everything
		p.SetNX(ctx, t.key(f, "secret"), secret, keysFor)
		p.PExpire(ctx, t.key(f, "secret"), keysFor)
		a.secret = p.Get(ctx, t.key(f, "secret"))
	}
	add := func(values ...any) *redis.StringCmd {
		return p.XAdd(ctx, &redis.XAddArgs{Stream: t.key(f, "log"), MaxLen: int64(f.o.LogMax), Approx: true, Values: values})
	}
	if t.sending != "" {
		a.sent = add("n", f.o.Name, "d", t.sending)
		a.out += len(t.sending)
	}
	if len(t.asks) > 0 {
		add("n", f.o.Name, "w", strings.Join(t.asks, "\n"))
		t.asks = nil
	}
	p.PExpire(ctx, t.key(f, "log"), keysFor)
	if now := f.clock(); t.wanted && now.Sub(t.written) >= askAgain {
		all := f.all()
		p.Set(ctx, t.key(f, "blocks:"+f.o.Name), all, writtenFor)
		t.wanted, t.written, a.written = false, now, true
		a.out += len(all)
	}
	t.reports++
	text := mark{f.id, t.epoch, t.number, t.reports}.before(report)
	p.HSet(ctx, t.key(f, "loads"), f.o.Name, text)
	if len(t.gone) > 0 {
		p.HDel(ctx, t.key(f, "loads"), t.gone...) // one that is not away after all writes again soon
		t.gone = nil
	}
	p.PExpire(ctx, t.key(f, "loads"), keysFor)
	a.out += len(text)
}

// all is everything that this replica holds, as of its last batch, which went before it:
// what is still pending is told afterwards, and comes twice.
func (f *Fleet) all() string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	b := batch{epoch: f.trip.epoch, number: f.trip.number}
	hashes := f.blocks.Blocks(f.own, nil)
	slices.Reverse(hashes) // the newest last, as they came
	for _, h := range hashes {
		b.changes = append(b.changes, hitmap.Change{Hash: h})
	}
	return string(b.append(nil))
}

// fetch asks for what is new of the others.
func (f *Fleet) fetch(ctx context.Context, p redis.Pipeliner, a *answers) {
	t := &f.trip
	t.trips++
	if t.last == "" {
		a.newest = p.XRevRangeN(ctx, t.key(f, "log"), "+", "-", 1)
	} else {
		a.log = p.XRead(ctx, &redis.XReadArgs{Streams: []string{t.key(f, "log"), t.last}, Count: entriesMax, Block: -1})
	}
	if len(t.names) <= f.o.LoadsMax {
		a.loads = p.HGetAll(ctx, t.key(f, "loads"))
	} else {
		for i := range f.o.LoadsMax { // each in turn
			a.asked = append(a.asked, t.names[(t.next+i)%len(t.names)])
		}
		t.next = (t.next + f.o.LoadsMax) % len(t.names)
		a.some = p.HMGet(ctx, t.key(f, "loads"), a.asked...)
		if t.trips%namesEvery == 0 {
			a.names = p.HKeys(ctx, t.key(f, "loads"))
		}
	}
	a.blocks = map[string]*redis.StringCmd{}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name, r := range f.others {
		if !r.synced && !r.asked.IsZero() {
			a.blocks[name] = p.Get(ctx, t.key(f, "blocks:"+name))
		}
	}
}

// settle books what was sent. f.mu is held, as below.
func (f *Fleet) settle(a *answers) {
	t := &f.trip
	f.counts.BytesOut += uint64(a.out)
	if a.sent != nil && a.sent.Err() == nil {
		f.counts.Sent += uint64(t.changes)
		if t.sending = ""; len(f.pending) >= batchMax {
			f.Hurry()
		}
	}
	if a.written {
		f.counts.Written++
	}
}

// hear takes what was fetched.
func (f *Fleet) hear(a *answers) {
	t, now := &f.trip, f.clock()
	if f.space != t.space {
		return // it is of another model
	}
	behind := false // there is more in the log than was read
	f.hearReports(a, now)
	for name, reply := range a.blocks {
		if text, err := reply.Result(); err == nil {
			f.restore(name, text)
		}
	}
	switch {
	case a.newest != nil && a.newest.Err() == nil:
		if t.last = "0"; len(a.newest.Val()) > 0 {
			t.last = a.newest.Val()[0].ID
		}
	case a.log != nil && a.log.Err() == nil && len(a.log.Val()) > 0:
		messages := a.log.Val()[0].Messages
		for i := range messages {
			t.last = messages[i].ID
			f.hearEntry(messages[i].Values)
		}
		if behind = len(messages) == entriesMax; behind {
			f.Hurry()
		}
	}
	if !behind && a.log != nil && (a.log.Err() == nil || errors.Is(a.log.Err(), redis.Nil)) {
		for _, r := range f.others {
			r.missed(f.blocks)
			r.due = r.told
		}
	}
	f.ask(now)
}

func (f *Fleet) hearEntry(values map[string]any) {
	name, _ := values["n"].(string)
	if want, ok := values["w"].(string); ok && name != f.o.Name {
		if slices.Contains(strings.Split(want, "\n"), f.o.Name) {
			f.trip.wanted = true
		}
		return
	}
	text, _ := values["d"].(string)
	r := f.others[name]
	if r == nil || text == "" { // its report has not come yet; then all its blocks are asked for
		return
	}
	f.counts.BytesIn += uint64(len(text))
	b, err := readBatch(text)
	if err != nil {
		f.blocks.End(name)
		r.synced = false
		return
	}
	f.counts.Received += uint64(len(b.changes))
	r.take(f.blocks, &b)
}

func (f *Fleet) restore(name, text string) {
	r := f.others[name]
	if r == nil {
		return
	}
	f.counts.BytesIn += uint64(len(text))
	if b, err := readBatch(text); err == nil {
		if r.restore(f.blocks, &b); r.synced {
			f.counts.Resyncs++
			r.asked = time.Time{}
		}
	}
}

// ask notes whose blocks are not known, so that the next trip asks for them.
func (f *Fleet) ask(now time.Time) {
	for name, r := range f.others {
		if r.alive && !r.synced && now.Sub(r.asked) >= askAgain {
			r.asked = now
			f.trip.asks = append(f.trip.asks, name)
		}
	}
	if len(f.trip.asks) > 0 {
		f.Hurry()
	}
}

// hearReports takes reports, and forgets replicas whose reports do not change.
func (f *Fleet) hearReports(a *answers, now time.Time) {
	switch {
	case a.loads != nil && a.loads.Err() == nil:
		f.trip.names = f.trip.names[:0]
		for name, report := range a.loads.Val() {
			f.hearReport(name, report, now)
			if name != f.o.Name {
				f.trip.names = append(f.trip.names, name)
			}
		}
	case a.some != nil && a.some.Err() == nil:
		for i, v := range a.some.Val() {
			if report, ok := v.(string); ok && i < len(a.asked) {
				f.hearReport(a.asked[i], report, now)
			}
		}
	}
	if a.names != nil && a.names.Err() == nil {
		f.trip.names = slices.DeleteFunc(a.names.Val(), func(name string) bool { return name == f.o.Name })
	}
	for name, r := range f.others {
		if now.Sub(r.seen) >= f.o.Lease {
			f.blocks.End(name)
			r.synced, r.alive, r.asked = false, false, time.Time{}
			if now.Sub(r.seen) >= keysFor {
				delete(f.others, name)
				f.trip.gone = append(f.trip.gone, name)
			}
		}
	}
}

func (f *Fleet) hearReport(name, report string, now time.Time) {
	f.counts.BytesIn += uint64(len(report))
	if name == f.o.Name {
		if m, _ := readMark(report); m.id != f.id {
			if f.twins++; f.twins%twinsLogged == twinsSure {
				f.o.Log.Error("siblings: another replica has the same name; give each its own siblings.name", "name", name)
			}
		}
		return
	}
	r := f.others[name]
	if r == nil {
		if len(f.others) >= replicasMax {
			return
		}
		r = &replica{name: name, seen: now}
		f.others[name] = r
	}
	r.heard(f.blocks, report, now)
}

// leave takes this replica out of Redis.
func (f *Fleet) leave() {
	if f.trip.space == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.o.Limit)
	defer cancel()
	f.o.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HDel(ctx, f.trip.key(f, "loads"), f.o.Name)
		p.Del(ctx, f.trip.key(f, "blocks:"+f.o.Name))
		return nil
	})
}
