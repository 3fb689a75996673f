package shared

import (
	"crypto/aes"
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// Options say how a Fleet works. All are needed but Secret and Log, and one of Client and Direct.
type Options struct {
	Client redis.UniversalClient // belongs to the Fleet from Open on
	Direct *Direct               // without Redis; needs Secret
	Prefix string                // what every key begins with
	Name   string                // of this replica, unlike all others
	Secret []byte                // nil for one that the replicas agree on in Redis

	Interval   time.Duration // of round trips
	Limit      time.Duration // the longest round trip
	Lease      time.Duration // after which a replica that says nothing is away
	BlocksMax  int           // blocks of others in the map, and of our own that are told
	ChangesMax int           // changes that wait to be sent
	LogMax     int           // batches that Redis keeps
	LoadsMax   int           // reports that are read at a time
	Log        *slog.Logger
}

// Counts count since the start, but for what is said.
type Counts struct {
	Sent     uint64 `json:"sent"`     // changes of our own blocks
	Dropped  uint64 `json:"dropped"`  // not sent, since too many waited or are held; in the first case the others fetch all
	Received uint64 `json:"received"` // changes of others
	Resyncs  uint64 `json:"resyncs"`  // times all blocks of another were fetched, after a gap or a start
	Written  uint64 `json:"written"`  // times all our own blocks were written down
	Trips    uint64 `json:"round_trips"`
	Failed   uint64 `json:"round_trips_failed"`
	Blocks   int    `json:"blocks"`  // of others in the map now
	Evicted  uint64 `json:"evicted"` // from the map, which was full
	BytesOut uint64 `json:"bytes_out"`
	BytesIn  uint64 `json:"bytes_in"`
}

// Sibling is another replica.
type Sibling struct {
	Name    string
	Address string        // at which it was asked, without Redis
	Report  string        // of load; what it means is between its writer and reader
	Age     time.Duration // since the report came
	Blocks  int           // of it in the map
	Synced  bool          // all of its blocks are known
}

// Holder is a replica that holds the first blocks of a prompt.
type Holder struct {
	Name   string
	Blocks int
}

// Fleet is this replica among the others. Its methods may be called from any
// goroutine, and none waits for Redis but Close.
type Fleet struct {
	o     Options
	clock func() time.Time
	wake  chan struct{}
	quit  chan struct{}
	ended chan struct{}
	once  sync.Once
	id    string // of this process, so that two with one name find out

	batchMax int // changes in a batch

	mu       sync.RWMutex // guards all below
	space    string
	grain    uint64
	seal     seal
	buf      [aes.BlockSize]byte
	secret   []byte              // nil until it is agreed on
	own      map[uint64]struct{} // our own blocks, not sealed
	pending  []hitmap.Change     // of own: sealed, not yet in a batch
	epoch    uint64
	fresh    bool // the epoch has begun, and nobody was told
	gap      bool // changes were dropped
	report   string
	blocks   *hitmap.Map
	others   map[string]*replica
	counts   Counts
	up       bool
	failures int // of round trips in a row
	twins    int // reports of others under our name
	recent   recent

	trip trip // of the loop alone
}

// Open starts a Fleet. Nothing is sent before Join.
func Open(o Options) (*Fleet, error) {
	f, err := assemble(o)
	switch {
	case err != nil:
	case o.Direct != nil:
		go f.loopDirect()
	default:
		go f.loop()
	}
	return f, err
}

// assemble makes a Fleet that makes no round trips by itself.
func assemble(o Options) (*Fleet, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	blocks, err := hitmap.NewMap(o.BlocksMax)
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		o: o, clock: time.Now, wake: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), id: rand.Text()[:10],
		blocks: blocks, own: map[uint64]struct{}{}, others: map[string]*replica{}, secret: o.Secret, grain: 1, up: true,
		batchMax: batchMax, trip: trip{width: entriesMax}, recent: recent{self: map[string]bool{}},
	}
	if o.Secret != nil {
		f.seal = newSeal(o.Secret)
	}
	f.begin()
	return f, nil
}

// begin starts a new epoch, in which we hold nothing. f.mu is held, or f is not shared yet.
func (f *Fleet) begin() {
	clear(f.own)
	f.renew()
}

// renew starts a new epoch, in which nobody was told yet what we hold.
func (f *Fleet) renew() {
	var b [8]byte
	rand.Read(b[:])
	f.epoch = binary.LittleEndian.Uint64(b[:]) | 1 // 0 is none
	f.pending, f.fresh, f.gap = f.pending[:0], true, false
}

// Join names the space of this replica, which changes when another model is loaded, and
// of how many blocks one is sent.
func (f *Fleet) Join(space string, grain int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if space == f.space {
		return
	}
	f.space, f.grain = space, uint64(max(1, grain))
	for name := range f.others {
		f.blocks.End(name)
	}
	clear(f.others)
	if f.o.Secret == nil {
		f.secret = nil // each space agrees on its own
	}
	f.begin()
}

// Follow takes the news of our own engine's blocks.
func (f *Fleet) Follow(news hitmap.News) {
	if !news.Missed && len(news.Changes) == 0 {
		return
	}
	f.mu.Lock()
	if news.Missed {
		f.begin()
	}
	for _, c := range news.Changes {
		if f.chosen(c.Hash) {
			f.change(c)
		}
	}
	f.mu.Unlock()
	if news.Missed { // the others must hear soon that the old claims are void
		f.Hurry()
	}
}

// chosen tells whether a block is one of those that are sent. f.mu is held.
func (f *Fleet) chosen(hash uint64) bool { return hash%f.grain == 0 }

// change books one change of our own. f.mu is held.
func (f *Fleet) change(c hitmap.Change) {
	switch _, held := f.own[c.Hash]; {
	case held != c.Evicted: // it is known
		return
	case held:
		delete(f.own, c.Hash)
	case len(f.own) >= f.o.BlocksMax:
		f.counts.Dropped++
		return
	default:
		f.own[c.Hash] = struct{}{}
	}
	if f.secret == nil { // all are told once there is one
		return
	}
	if len(f.pending) >= f.o.ChangesMax {
		// Those that wait go too: what is fetched in their place is newer than they are.
		f.counts.Dropped += uint64(1 + len(f.pending))
		f.pending, f.gap = f.pending[:0], true
		return
	}
	c.Hash = f.seal.hash(c.Hash, &f.buf)
	f.pending = append(f.pending, c)
}

// agree takes the secret that the replicas agreed on. f.mu is held. Where it is
// another one, since Redis lost the one before, all our blocks are told anew.
func (f *Fleet) agree(secret string) {
	if secret == "" || secret == string(f.secret) {
		return
	}
	if f.secret != nil {
		f.renew()
	}
	f.secret, f.seal = []byte(secret), newSeal([]byte(secret))
	if f.gap = len(f.own) > f.o.ChangesMax; f.gap {
		return
	}
	for h := range f.own {
		f.pending = append(f.pending, hitmap.Change{Hash: f.seal.hash(h, &f.buf)})
	}
}

// Secret is what the replicas of the space have in common; nil until they agreed.
func (f *Fleet) Secret() []byte {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.secret
}

// Report sets what others read of this replica. It leaves with the next round trip.
func (f *Fleet) Report(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report = text
}

// Hurry makes the next round trip at once.
func (f *Fleet) Hurry() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// scratch is memory of one Match.
type scratch struct {
	sealed []uint64
	at     []int
	holds  []hitmap.Hold
	buf    [aes.BlockSize]byte
}

var scratches = sync.Pool{New: func() any { return &scratch{} }}

// Match appends the other replicas that hold the first blocks of a prompt to into,
// those that hold the most first.
func (f *Fleet) Match(blocks []uint64, into []Holder) []Holder {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	return f.match(blocks, s, into)
}

func (f *Fleet) match(blocks []uint64, s *scratch, into []Holder) []Holder {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.secret == nil {
		return into
	}
	f.sealAll(blocks, s)
	s.holds = f.blocks.Match(s.sealed, s.holds[:0])
	for _, h := range s.holds {
		into = append(into, Holder{f.blocks.Name(h.Slot), s.at[h.Blocks-1] + 1})
	}
	return into
}

// sealAll seals the chosen ones of blocks. f.mu is held.
func (f *Fleet) sealAll(blocks []uint64, s *scratch) {
	s.sealed, s.at = s.sealed[:0], s.at[:0]
	for i, h := range blocks {
		if f.chosen(h) {
			s.sealed, s.at = append(s.sealed, f.seal.hash(h, &s.buf)), append(s.at, i)
		}
	}
}

// Use notes that a prompt was asked, so that what is known of it is kept longest.
func (f *Fleet) Use(blocks []uint64) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.secret != nil {
		f.sealAll(blocks, s)
		f.blocks.Use(s.sealed)
	}
}

// Siblings appends the other replicas that are alive to into.
func (f *Fleet) Siblings(into []Sibling) []Sibling {
	now := f.clock()
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, r := range f.others {
		if age := now.Sub(r.seen); r.alive && age < f.o.Lease {
			_, report := readMark(r.report)
			s := Sibling{Name: r.name, Address: r.address, Report: report, Age: age, Synced: r.synced}
			if slot, ok := f.blocks.Slot(r.name); ok {
				s.Blocks = f.blocks.Claims(slot)
			}
			into = append(into, s)
		}
	}
	return into
}

// Counts returns the counts of this moment, and whether Redis answers.
func (f *Fleet) Counts() (c Counts, up bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	c = f.counts
	c.Blocks, c.Evicted = f.blocks.Len(), f.blocks.Evicted()
	return c, f.up
}

// Held is how many of the first blocks of a prompt this replica holds, to within a grain.
func (f *Fleet) Held(blocks []uint64) (n int) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i, h := range blocks {
		if !f.chosen(h) {
			continue
		}
		if _, held := f.own[h]; !held {
			break
		}
		n = i + 1
	}
	return n
}

// Own counts our own blocks that others are told of.
func (f *Fleet) Own() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.own)
}

// Close tells the others that this replica has left, if a Redis answers within the limit.
func (f *Fleet) Close() {
	f.once.Do(func() {
		close(f.quit)
		<-f.ended
		if f.o.Client != nil {
			f.leave()
			f.o.Client.Close()
		}
	})
}

// mark makes each report differ from the one before: the process that wrote it, the
// epoch of its engine, the number of the last batch in that epoch, and one of the report.
type mark struct {
	id                   string
	epoch, batch, number uint64
}

func (m mark) before(report string) string {
	text := m.id
	for _, n := range [...]uint64{m.epoch, m.batch, m.number} {
		text += "." + strconv.FormatUint(n, 36)
	}
	return text + " " + report
}

func readMark(text string) (m mark, report string) {
	head, report, _ := strings.Cut(text, " ")
	parts := strings.Split(head, ".")
	if m.id = parts[0]; len(parts) == 4 {
		m.epoch, _ = strconv.ParseUint(parts[1], 36, 64)
		m.batch, _ = strconv.ParseUint(parts[2], 36, 64)
		m.number, _ = strconv.ParseUint(parts[3], 36, 64)
	}
	return m, report
}
