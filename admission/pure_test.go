package admission

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// fingerprint is a hash of all that can be reached from a value: every field,
// and every element of slices and maps up to their length, but not scratch. It follows a pointer
// once, and knows it by its address.
func fingerprint(root any) uint64 {
	f := &fingerprinter{seen: map[uintptr]bool{}}
	f.hash.SetSeed(fingerprintSeed)
	f.add(reflect.ValueOf(root))
	return f.hash.Sum64()
}

var fingerprintSeed = maphash.MakeSeed()

type fingerprinter struct {
	hash   maphash.Hash
	seen   map[uintptr]bool
	buffer [8]byte
}

func (f *fingerprinter) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		f.word(uint64(v.Pointer()))
		if !v.IsNil() && !f.seen[v.Pointer()] {
			f.seen[v.Pointer()] = true
			f.add(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Field(i); field.Type() != reflect.TypeFor[scratch]() {
				f.add(field)
			}
		}
	case reflect.Slice, reflect.Array:
		f.word(uint64(v.Len()))
		for i := range v.Len() {
			f.add(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(mapKey(a), mapKey(b)) })
		for _, k := range keys {
			f.hash.WriteString(mapKey(k))
			f.add(v.MapIndex(k))
		}
	case reflect.String:
		f.hash.WriteString(v.String())
	case reflect.Float32, reflect.Float64:
		f.word(math.Float64bits(v.Float()))
	case reflect.Func:
	default:
		if v.CanInt() {
			f.word(uint64(v.Int()))
		} else {
			fmt.Fprint(&f.hash, v, " ")
		}
	}
}

func (f *fingerprinter) word(x uint64) {
	f.hash.Write(binary.LittleEndian.AppendUint64(f.buffer[:0], x))
}

// mapKey names a key: a pointer by its address.
func mapKey(k reflect.Value) string {
	if k.Kind() == reflect.Pointer {
		return fmt.Sprint(k.Pointer())
	}
	return fmt.Sprint(k)
}

// TestLookingChangesNothing: to choose, to forecast and to show the queue only
// read the state, in all states that random plays come to.
func TestLookingChangesNothing(t *testing.T) {
	starts, interrupts, lates := 0, 0, 0
	for seed := range uint64(5) {
		p := newPlay(t, seed, Config{RunningSequencesMax: 3 + int(seed%9), WaitingRequestsMax: 40, LongPrefill: 300 * time.Millisecond, Quantum: 50 * time.Millisecond, Classes: []Class{
			{Name: "offline", Window: time.Second}, {Name: "batch", FirstTokenGoal: 3 * time.Second, Late: "refuse"},
		}})
		p.look = func() {
			before := fingerprint(p.Scheduler)
			unchanged := func(what string) {
				if fingerprint(p.Scheduler) != before {
					t.Fatalf("seed %d: to %s changes the scheduler", seed, what)
				}
			}
			d := p.choose(nil)
			unchanged("choose")
			if d.start != nil {
				starts++
			}
			if d.interrupted() {
				interrupts++
			}
			for _, e := range p.entries {
				if e.state == waiting && e.due > 0 {
					f := p.forecast(e.class)
					if late, _ := f.test(&p.levels[e.level].track, e); late != nil {
						lates++
					}
					break
				}
			}
			unchanged("forecast")
		}
		for range 200 {
			p.randomTurn()
			p.look()
			p.showsNothingNew(t)
		}
	}
	t.Logf("%d starts, %d interruptions, %d late", starts, interrupts, lates)
	if starts < 50 || interrupts < 50 || lates < 50 {
		t.Errorf("the plays were idle: %d starts, %d interruptions, %d late", starts, interrupts, lates)
	}
}

// showsNothingNew takes a View, whose clock has been advanced already.
func (p *play) showsNothingNew(t *testing.T) {
	t.Helper()
	p.advance(p.now)
	before := fingerprint(p.Scheduler)
	p.View(p.now)
	if fingerprint(p.Scheduler) != before {
		t.Fatal("to view changes the scheduler")
	}
}
