package cache

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// script runs commands on a pool and on its twin and compares them after each.
// It also plays the model: memory holds for each token of each page a value
// that depends on everything before it, as keys and values do, so that a page
// shared, kept or copied wrongly shows as wrong contents.
type script struct {
	pool   *Pool
	twin   *twin
	seqs   map[string]*scriptSeq
	memory [][]uint64
	log    []string

	// A reader of the journal that looks after every third command, and its set.
	reader hitmap.Reader
	mirror hitmap.Set
	missed bool

	changes hitmap.Reader // of the command changes
}

type scriptSeq struct {
	*Seq
	twin   *twinSeq
	tokens []int32 // prompt and output, computed or not
}

func newScript(c Config) (*script, error) {
	pool, err := New(c)
	if err != nil {
		return nil, err
	}
	x := &script{pool: pool, seqs: make(map[string]*scriptSeq), memory: make([][]uint64, c.Pages)}
	for i := range x.memory {
		x.memory[i] = make([]uint64, c.PageTokens)
	}
	x.twin = &twin{total: c.Pages, pageTokens: c.PageTokens}
	return x, nil
}

// run executes one command; its error names what the pool got wrong.
//
//	open NAME SALT TOKENS   claim NAME     unclaim NAME    close NAME
//	reserve NAME COUNT      commit NAME COUNT              fork NAME NEW
//	append NAME TOKENS      match SALT TOKENS   pages NAME  counts  changes
func (x *script) run(line string) (out string, err error) {
	x.log = append(x.log, line)
	f := strings.Fields(line)
	if len(f) > 1 && f[0] != "open" && f[0] != "match" && x.seqs[f[1]] == nil {
		return "", fmt.Errorf("no sequence %s", f[1])
	}
	switch f[0] {
	case "open":
		out = x.open(f[1], f[2], parseTokens(f[3:]))
	case "append":
		x.seqs[f[1]].tokens = append(x.seqs[f[1]].tokens, parseTokens(f[2:])...)
	case "match":
		out = fmt.Sprint(x.pool.Match(f[1], parseTokens(f[2:])), " tokens")
	case "pages":
		out = fmt.Sprint(x.seqs[f[1]].Pages())
	case "counts":
		c := x.pool.Counts()
		out = fmt.Sprintf("used %d cached %d free %d", c.Used, c.Cached, c.Free)
	case "changes":
		journal := x.pool.Journal()
		for _, c := range x.changes.Read(&journal).Changes {
			out += map[bool]string{false: "+", true: "-"}[c.Evicted] + x.nameOf(c.Hash) + " "
		}
		out = strings.TrimSpace(out)
	default:
		out, err = x.change(f)
	}
	if err == nil {
		err = x.check()
	}
	return out, err
}

// nameOf is a short stable name of a hash.
func (x *script) nameOf(hash uint64) string { return fmt.Sprintf("%04x", hash>>48) }

func (x *script) open(name, salt string, tokens []int32) string {
	want := x.pool.Match(salt, tokens)
	s := &scriptSeq{Seq: x.pool.Open(salt, tokens), twin: &twinSeq{salt: salt}, tokens: tokens}
	if s.Len() != want {
		panic(fmt.Sprintf("match says %d tokens, open attaches %d", want, s.Len()))
	}
	x.seqs[name] = s
	x.twin.open = append(x.twin.open, s.twin)
	x.twin.attach(s.twin, tokens)
	return fmt.Sprint(s.Len(), " attached")
}

func (x *script) change(f []string) (out string, err error) {
	s, n := x.seqs[f[1]], 0
	if len(f) > 2 && f[0] != "fork" {
		if n, err = strconv.Atoi(f[2]); err != nil {
			return "", err
		}
	}
	switch f[0] {
	case "claim":
		got, want := x.pool.Claim(s.Seq, s.tokens), x.twin.claim(s.twin, s.tokens)
		if got != want {
			return "", fmt.Errorf("claim is %v, twin says %v", got, want)
		}
		out = map[bool]string{true: "compute", false: "wait"}[got] + fmt.Sprintf(" at %d", s.Len())
	case "unclaim":
		x.pool.Unclaim(s.Seq)
		s.twin.claim = ""
	case "reserve":
		return x.reserve(s, n)
	case "commit":
		next := s.tokens[s.Len() : s.Len()+n]
		x.write(s, n)
		x.pool.Commit(s.Seq, next)
		x.twin.commit(s.twin, next)
	case "fork":
		x.seqs[f[2]] = &scriptSeq{Seq: x.pool.Fork(s.Seq), twin: x.twin.fork(s.twin), tokens: slices.Clone(s.tokens)}
	case "close":
		x.pool.Close(s.Seq)
		x.twin.close(s.twin)
		delete(x.seqs, f[1])
	default:
		return "", fmt.Errorf("no command %s", f[0])
	}
	return out, nil
}

func (x *script) reserve(s *scriptSeq, n int) (string, error) {
	copies, ok := x.pool.Reserve(s.Seq, n, nil)
	if want := x.twin.reserve(s.twin, n); ok != want {
		return "", fmt.Errorf("reserve is %v, twin says %v", ok, want)
	}
	if !ok {
		return "full", nil
	}
	out := "ok"
	for _, c := range copies {
		copy(x.memory[c.Dst], x.memory[c.Src])
		out += fmt.Sprintf(" copy %d from %d", c.Dst, c.Src)
	}
	return out, nil
}

// write computes the next n tokens into memory.
func (x *script) write(s *scriptSeq, n int) {
	for i := s.Len(); i < s.Len()+n; i++ {
		x.memory[s.Pages()[i/x.pool.pageTokens]][i%x.pool.pageTokens] = contents(s.salt, s.tokens[:i+1])
	}
}

func contents(salt string, tokens []int32) uint64 { return xxh3.HashString(prefix(salt, tokens)) }

func (x *script) check() error {
	if err := x.pool.Check(); err != nil {
		return err
	}
	if got, want := x.pool.Counts(), x.twin.counts(); got != want {
		return fmt.Errorf("counts %+v, twin says %+v", got, want)
	}
	if err := x.follow(); err != nil {
		return err
	}
	for name, s := range x.seqs {
		if s.Len() != len(s.twin.tokens) {
			return fmt.Errorf("%s has %d tokens, twin says %d", name, s.Len(), len(s.twin.tokens))
		}
		for i := range s.Len() {
			if x.memory[s.Pages()[i/x.pool.pageTokens]][i%x.pool.pageTokens] != contents(s.salt, s.tokens[:i+1]) {
				return fmt.Errorf("%s reads wrong contents at token %d", name, i)
			}
		}
	}
	return nil
}

// follow compares the mirror with the pool. It must hold no other blocks than the
// pool, and all of them where no change was missed and no hash was cut.
func (x *script) follow() error {
	if len(x.log)%3 != 0 {
		return nil
	}
	journal := x.pool.Journal()
	news := x.reader.Read(&journal)
	x.mirror.Follow(news)
	x.missed = x.missed || news.Missed
	held := blocks(x.pool)
	if !within(&x.mirror, held) {
		return fmt.Errorf("the mirror holds blocks that the pool has not")
	}
	if !x.missed && x.pool.hasher.mask == math.MaxUint64 && x.mirror.Len() != len(held) {
		return fmt.Errorf("the mirror holds %d blocks of %d", x.mirror.Len(), len(held))
	}
	return nil
}

// parseTokens reads "5 7 1..4".
func parseTokens(fields []string) (tokens []int32) {
	for _, f := range fields {
		from, to, ranged := strings.Cut(f, "..")
		a, _ := strconv.Atoi(from)
		b := a
		if ranged {
			b, _ = strconv.Atoi(to)
		}
		for ; a <= b; a++ {
			tokens = append(tokens, int32(a))
		}
	}
	return tokens
}

// operate does one random operation, with choose(n) in [0, n).
func (x *script) operate(choose func(n int) int) error {
	names := make([]string, 0, len(x.seqs))
	for name := range x.seqs {
		names = append(names, name)
	}
	slices.Sort(names)
	op := choose(12)
	if len(names) == 0 || (op < 2 && len(names) < 8) {
		line := fmt.Sprintf("open s%d %c", len(x.log), 'a'+choose(8)/7)
		for range choose(3*x.pool.pageTokens) + 1 {
			line += fmt.Sprint(" ", choose(5)/4) // mostly 0, so that prefixes meet
		}
		return x.runAll(line)
	}
	name := names[choose(len(names))]
	s := x.seqs[name]
	switch op {
	case 2:
		if len(names) < 8 {
			return x.runAll(fmt.Sprintf("fork %s s%d", name, len(x.log)))
		}
		return nil
	case 3:
		return x.runAll("close " + name)
	case 4:
		return x.runAll(fmt.Sprintf("reserve %s %d", name, choose(6)))
	case 5:
		return x.runAll("unclaim " + name)
	case 6, 7:
		return x.progress(names)
	}
	if s.Len() == len(s.tokens) {
		return x.runAll(fmt.Sprintf("append %s %d", name, choose(2)), "claim "+name)
	}
	if out, err := x.run("claim " + name); err != nil || strings.HasPrefix(out, "wait") {
		return err
	}
	n := 1 + choose(min(len(s.tokens)-s.Len(), 6))
	out, err := x.run(fmt.Sprintf("reserve %s %d", name, n))
	if err != nil || out == "full" {
		return err
	}
	return x.runAll(fmt.Sprintf("commit %s %d", name, n))
}

func (x *script) runAll(lines ...string) error {
	for _, line := range lines {
		if _, err := x.run(line); err != nil {
			return err
		}
	}
	return nil
}

// progress claims for all: somebody must be free to compute.
func (x *script) progress(names []string) error {
	waiting, want := 0, 0
	for _, name := range names {
		if s := x.seqs[name]; s.Len() == len(s.tokens) {
			continue
		}
		out, err := x.run("claim " + name)
		if err != nil {
			return err
		}
		want++
		if strings.HasPrefix(out, "wait") {
			waiting++
		}
	}
	if want > 0 && waiting == want {
		return fmt.Errorf("all %d sequences wait for each other", want)
	}
	return nil
}
