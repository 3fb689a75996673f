package shared

import (
	"context"
	"crypto/aes"
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
	// entriesMax is how many entries of the log are read at a time, and entriesLeast how
	// many where more do not come within the limit of a round trip.
	entriesMax, entriesLeast = 1024, 16
	// entriesOfAsk is how many entries are read at a time for each replica that is asked
	// for all its blocks at a time: they are as long as many entries.
	entriesOfAsk = 64
	// namesEvery is how many round trips pass between two lists of all names, where
	// not all reports are read each time.
	namesEvery = 20
	// newestEvery is how many round trips pass between two looks at the end of the log: in
	// a Redis that has lost everything, and whose clock is behind, it is before our place.
	newestEvery = 20
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
	width   int      // entries of the log that are read at a time
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
		*t = trip{space: f.space, reports: t.reports, width: t.width}
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
		n := min(len(f.pending), f.batchMax)
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
	count   int      // of entries that log has at most
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
	f.trip.adapt(err)
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

// adapt reads less at a time where round trips fail: it may have been too much for the limit.
func (t *trip) adapt(err error) {
	if err != nil {
		t.width = max(min(entriesLeast, t.width), t.width/2)
	} else {
		t.width = min(entriesMax, 2*t.width)
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
		f.mu.RLock()
		all := f.all(t.epoch, t.number)
		f.mu.RUnlock()
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
// what is still pending is told afterwards, and comes twice. f.mu is held.
func (f *Fleet) all(epoch, number uint64) string {
	b := batch{epoch: epoch, number: number}
	var buf [aes.BlockSize]byte
	for h := range f.own {
		b.changes = append(b.changes, hitmap.Change{Hash: f.seal.hash(h, &buf)})
	}
	return string(b.append(nil))
}

// fetch asks for what is new of the others.
func (f *Fleet) fetch(ctx context.Context, p redis.Pipeliner, a *answers) {
	t := &f.trip
	t.trips++
	if t.last != "" {
		a.count = t.width
		a.log = p.XRead(ctx, &redis.XReadArgs{Streams: []string{t.key(f, "log"), t.last}, Count: int64(t.width), Block: -1})
	}
	if t.last == "" || t.trips%newestEvery == 0 {
		a.newest = p.XRevRangeN(ctx, t.key(f, "log"), "+", "-", 1)
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
	now := f.clock()
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name, r := range f.others {
		if r.awaited(now) {
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
		if t.sending = ""; len(f.pending) >= f.batchMax {
			f.Hurry()
		}
	}
	if a.written {
		f.counts.Written++
	}
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
