package wiretest

import (
	"time"

	"github.com/forebay-io/forebay/internal/wire"
)

// Record is what a Fake has seen of one request id.
type Record struct {
	ID         string
	Prepared   bool // Prepare was called
	Dispatched bool // Generate was called; the fields down to Salt are of its Generation
	Prompt     string
	Options    wire.Options
	Trace      wire.TraceContext
	Class      string
	Serial     uint64
	Level      int
	Key        int64
	Long       bool
	TokenGoal  time.Duration
	Pin        wire.Pin
	Salt       string

	Tokens   int // generated so far, over all choices
	Canceled bool
	Ended    bool
	Err      *wire.Error // of the end
}

func (r *Record) dispatched(g *wire.Generation) {
	r.Dispatched = true
	r.Prompt, r.Options, r.Trace = g.Prompt.Text, g.Options, g.Trace
	r.Class, r.Salt, r.Serial = g.Class, g.Salt, g.Serial
	r.Level, r.Key, r.Long, r.TokenGoal = g.Level, g.Key, g.Long, g.TokenGoal
	r.Pin = g.Pin
}

// record returns the record of an id, and makes it where there is none. The caller
// holds mu.
func (f *Fake) record(id string) *Record {
	r := f.byID[id]
	if r == nil {
		r = &Record{ID: id}
		f.byID[id] = r
		f.records = append(f.records, r)
	}
	return r
}

// Records are copies of all records, in order of first sight.
func (f *Fake) Records() []Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Record, len(f.records))
	for i, r := range f.records {
		all[i] = *r
	}
	return all
}

// Record is a copy of one id's record.
func (f *Fake) Record(id string) (Record, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.byID[id]; r != nil {
		return *r, true
	}
	return Record{}, false
}

// Live is how many generations have neither ended nor been cancelled.
func (f *Fake) Live() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.works)
}

// WaitRecord waits until some record satisfies ok, and returns it. It returns false
// after limit.
func (f *Fake) WaitRecord(limit time.Duration, ok func(Record) bool) (found Record, _ bool) {
	return found, wait(limit, func() bool {
		for _, r := range f.Records() {
			if ok(r) {
				found = r
				return true
			}
		}
		return false
	})
}
