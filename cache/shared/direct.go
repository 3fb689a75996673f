package shared

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"
)

// This file is how replicas learn of each other without Redis: each asks every other
// one, in each interval, for what is new since it asked last.

// Direct says how the others are asked.
type Direct struct {
	// Addresses are those of all replicas, of which this may be one. It may take its time.
	Addresses func(ctx context.Context) []string
	Every     time.Duration // how often Addresses is called
	// Ask has the replica at an address call Answer. Both ends know that the other has the secret.
	Ask func(ctx context.Context, address string, question []byte) (answer []byte, err error)
}

const (
	// recentMax is how many of our batches are kept; who is further behind gets all blocks.
	recentMax = 64
	// pauseMax is the longest pause after an address that does not answer, or is our own.
	pauseMax = time.Second
)

// question is what a replica wants to know of another.
type question struct {
	Space  string `json:"space"`
	Epoch  uint64 `json:"epoch,omitempty"`  // of the last batch that it has; 0 for none
	Number uint64 `json:"number,omitempty"` // of that batch
}

// answer is what a replica tells of itself.
type answer struct {
	Name    string   `json:"name"`
	Space   string   `json:"space"`
	Report  string   `json:"report"`            // after its mark
	Batches [][]byte `json:"batches,omitempty"` // all after the one that was named
	All     []byte   `json:"all,omitempty"`     // in place of them
}

// recent is what others are told of us. Fleet.mu guards it.
type recent struct {
	space         string
	epoch, number uint64   // of the last batch
	batches       [][]byte // the last ones, in order
	turns         uint64
	heard         time.Time       // when the last answer came
	self          map[string]bool // addresses that are our own
}

// loopDirect tells what is new here, and asks the others.
func (f *Fleet) loopDirect() {
	defer close(f.ended)
	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	found := make(chan []string)
	tasks.Go(func() { f.look(ctx, found) })
	asked := map[string]context.CancelFunc{}
	tick := time.NewTicker(f.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-f.quit:
			return
		case <-tick.C:
		case <-f.wake:
		case addresses := <-found:
			f.askAll(ctx, &tasks, asked, addresses)
		}
		f.turn(len(asked))
	}
}

// look finds addresses again and again.
func (f *Fleet) look(ctx context.Context, found chan<- []string) {
	for {
		addresses := f.o.Direct.Addresses(ctx)
		select {
		case found <- addresses:
		case <-ctx.Done():
			return
		}
		sleep(ctx, f.o.Direct.Every)
	}
}

// askAll starts to ask at new addresses, and ends it at those that are not there any more.
func (f *Fleet) askAll(ctx context.Context, tasks *sync.WaitGroup, asked map[string]context.CancelFunc, addresses []string) {
	if len(addresses) > replicasMax {
		f.o.Log.Error("siblings: there are more addresses than replicas can be told apart; only the first are asked", "addresses", len(addresses), "limit", replicasMax)
		addresses = addresses[:replicasMax]
	}
	there := map[string]bool{}
	for _, address := range addresses {
		there[address] = true
		if asked[address] == nil {
			own, end := context.WithCancel(ctx)
			asked[address] = end
			tasks.Go(func() { f.keepAsking(own, address) })
		}
	}
	for address, end := range asked {
		if !there[address] {
			end()
			delete(asked, address)
		}
	}
	f.mu.Lock()
	maps.DeleteFunc(f.recent.self, func(address string, _ bool) bool { return !there[address] })
	f.mu.Unlock()
}

// turn makes a batch of what is new here, and forgets who was not heard for long.
func (f *Fleet) turn(addresses int) {
	if !f.prepare() {
		return
	}
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	t, d := &f.trip, &f.recent
	if d.heard.IsZero() {
		d.heard = now
	}
	if d.space != t.space || d.epoch != t.epoch {
		d.space, d.epoch, d.number, d.batches = t.space, t.epoch, 0, nil
	}
	if t.sending != "" {
		if t.number != d.number+1 { // changes were dropped: all blocks must be fetched
			d.batches = nil
		}
		d.number, d.batches = t.number, append(d.batches, []byte(t.sending))
		d.batches = d.batches[max(0, len(d.batches)-recentMax):]
		f.counts.Sent += uint64(t.changes)
		if t.sending = ""; len(f.pending) >= f.batchMax {
			f.Hurry()
		}
	}
	d.turns++
	f.forget(now)
	t.gone = nil // nobody keeps their reports
	others := addresses - len(d.self)
	if up := others <= 0 || now.Sub(d.heard) < f.o.Lease; up != f.up {
		if f.up = up; up {
			f.o.Log.Info("siblings: others answer again")
		} else {
			f.o.Log.Warn("siblings: no other replica answers; requests stay here until one does", "addresses", others)
		}
	}
}

// Answer answers a question of another replica.
func (f *Fleet) Answer(text []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, errors.New("the question of a sibling cannot be read: is another version of forebay running?")
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	d := &f.recent
	a := answer{Name: f.o.Name, Space: f.space, Report: mark{f.id, d.epoch, d.number, d.turns}.before(f.report)}
	if q.Space == f.space && d.space == f.space && d.number > 0 {
		behind := d.number - q.Number
		if q.Epoch == d.epoch && q.Number <= d.number && behind <= uint64(len(d.batches)) {
			a.Batches = d.batches[len(d.batches)-int(behind):]
		} else {
			a.All = []byte(f.all(d.epoch, d.number))
		}
	}
	return json.Marshal(&a)
}

// keepAsking asks at an address until ctx ends.
func (f *Fleet) keepAsking(ctx context.Context, address string) {
	pause, name, failed := f.o.Interval, "", false
	for ctx.Err() == nil {
		who, err := f.askOnce(ctx, address, name)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !failed {
				f.o.Log.Warn("siblings: a replica does not answer", "address", address, "error", err)
			}
			pause, failed = min(2*pause, pauseMax), true
		case who == f.o.Name:
			pause = pauseMax
		default:
			if failed {
				f.o.Log.Info("siblings: a replica answers again", "address", address, "name", who)
			}
			pause, name, failed = f.o.Interval, who, false
		}
		sleep(ctx, pause)
	}
}

// askOnce asks the replica at an address, which had a name, and takes what it tells.
func (f *Fleet) askOnce(ctx context.Context, address, name string) (who string, err error) {
	f.mu.RLock()
	q := question{Space: f.space}
	if r := f.others[name]; r != nil && r.synced {
		q.Epoch, q.Number = r.epoch, r.number
	}
	f.mu.RUnlock()
	if q.Space == "" {
		return name, nil // there is no model yet
	}
	text, err := json.Marshal(&q)
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, f.o.Limit)
	defer cancel()
	reply, err := f.o.Direct.Ask(limited, address, text)
	var a answer
	if err == nil {
		err = json.Unmarshal(reply, &a)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Trips++
	f.counts.BytesOut += uint64(len(text))
	if err != nil {
		f.counts.Failed++
		return "", err
	}
	f.hearAnswer(address, &q, &a)
	return a.Name, nil
}

// hearAnswer takes what a replica tells of itself. f.mu is held.
func (f *Fleet) hearAnswer(address string, q *question, a *answer) {
	now := f.clock()
	if f.space != q.Space {
		return // we have another model now
	}
	if m, _ := readMark(a.Report); m.id == f.id {
		f.recent.self[address] = true
		return
	}
	delete(f.recent.self, address)
	f.recent.heard = now
	if a.Space != f.space {
		f.blocks.End(a.Name)
		delete(f.others, a.Name)
		return
	}
	f.hearReport(a.Name, a.Report, now)
	r := f.others[a.Name]
	if r == nil {
		return // it has our name, or is one too many
	}
	r.address = address
	for _, text := range a.Batches {
		f.hearBatch(r, string(text))
	}
	if a.All != nil {
		r.lose(f.blocks)
		f.restore(a.Name, string(a.All))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
