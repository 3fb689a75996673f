package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// fakeRedis holds what the commands of a Fleet write, in memory and by a clock of its
// own. It fails as it is told.
type fakeRedis struct {
	texts   map[string]string
	hashes  map[string]map[string]string
	streams map[string][]redis.XMessage
	until   map[string]int64
	now     int64 // milliseconds
	last    int64 // of the ids of streams
	behind  int64 // milliseconds by which ids are behind now

	fail    string           // of the next pipelines: "", "cut", "lost", "late", "full"
	delayed [][]any          // commands that are still under way
	between func()           // runs between two commands of a pipeline
	ran     func(args []any) // is told each command
}

func newFakeRedis() *fakeRedis {
	f := &fakeRedis{now: 1_000_000, ran: func([]any) {}, between: func() {}}
	f.flush()
	return f
}

func (f *fakeRedis) flush() {
	f.texts, f.hashes = map[string]string{}, map[string]map[string]string{}
	f.streams, f.until = map[string][]redis.XMessage{}, map[string]int64{}
}

func (f *fakeRedis) client() redis.UniversalClient {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	c.AddHook(f)
	return c
}

func (f *fakeRedis) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errCut }
}

func (f *fakeRedis) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, c redis.Cmder) error { return f.answer(c, "") }
}

var (
	errCut  = errors.New("the connection was cut")
	errFull = errors.New("OOM command not allowed when used memory > 'maxmemory'")
)

func (f *fakeRedis) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, all []redis.Cmder) error {
		fail := f.fail
		for _, c := range all {
			f.between()
			switch fail {
			case "cut":
				c.SetErr(errCut)
			case "late":
				f.delayed = append(f.delayed, c.Args())
				c.SetErr(errCut)
			case "lost":
				f.run(c.Args())
				c.SetErr(errCut)
			default:
				f.answer(c, fail)
			}
		}
		if fail == "cut" || fail == "late" || fail == "lost" {
			return errCut
		}
		return nil
	}
}

// arrive runs the commands that were delayed.
func (f *fakeRedis) arrive() {
	for _, args := range f.delayed {
		f.run(args)
	}
	f.delayed = nil
}

func (f *fakeRedis) answer(c redis.Cmder, fail string) error {
	args := c.Args()
	if fail == "full" && slices.Contains([]string{"set", "xadd", "hset"}, args[0].(string)) {
		c.SetErr(errFull)
		return errFull
	}
	v := f.run(args)
	if v == nil {
		c.SetErr(redis.Nil)
		return redis.Nil
	}
	switch c := c.(type) {
	case *redis.StatusCmd:
		c.SetVal(v.(string))
	case *redis.StringCmd:
		c.SetVal(v.(string))
	case *redis.BoolCmd:
		c.SetVal(v.(bool))
	case *redis.IntCmd:
		c.SetVal(v.(int64))
	case *redis.MapStringStringCmd:
		c.SetVal(v.(map[string]string))
	case *redis.SliceCmd:
		c.SetVal(v.([]any))
	case *redis.StringSliceCmd:
		c.SetVal(v.([]string))
	case *redis.XMessageSliceCmd:
		c.SetVal(v.([]redis.XMessage))
	case *redis.XStreamSliceCmd:
		c.SetVal([]redis.XStream{{Stream: args[4].(string), Messages: v.([]redis.XMessage)}})
	default:
		panic(fmt.Sprintf("the fake has no answers of %T", c))
	}
	return nil
}

// run is one command; nil is the reply that a key is not there.
func (f *fakeRedis) run(args []any) any {
	f.ran(args)
	if args[0] == "xread" { // count N streams KEY ID
		count, _ := strconv.Atoi(fmt.Sprint(args[2]))
		return f.read(args[4].(string), idOf(fmt.Sprint(args[5])), count)
	}
	key := args[1].(string)
	if until, ok := f.until[key]; ok && until <= f.now {
		delete(f.texts, key)
		delete(f.hashes, key)
		delete(f.streams, key)
		delete(f.until, key)
	}
	switch args[0] {
	case "get":
		if text, ok := f.texts[key]; ok {
			return text
		}
		return nil
	case "set":
		return f.set(key, args)
	case "del":
		delete(f.texts, key)
		return int64(1)
	case "pexpire":
		f.until[key] = f.now + msOf(args[2])
		return true
	case "hset":
		if f.hashes[key] == nil {
			f.hashes[key] = map[string]string{}
		}
		f.hashes[key][args[2].(string)] = fmt.Sprint(args[3])
		return int64(1)
	case "hdel":
		for _, name := range args[2:] {
			delete(f.hashes[key], name.(string))
		}
		return int64(1)
	case "hgetall":
		all := map[string]string{}
		for k, v := range f.hashes[key] {
			all[k] = v
		}
		return all
	case "hkeys":
		var all []string
		for k := range f.hashes[key] {
			all = append(all, k)
		}
		return all
	case "hmget":
		var all []any
		for _, name := range args[2:] {
			if text, ok := f.hashes[key][name.(string)]; ok {
				all = append(all, text)
			} else {
				all = append(all, nil)
			}
		}
		return all
	case "xrevrange":
		all := f.streams[key]
		return slices.Clone(all[max(0, len(all)-1):])
	case "xadd":
		return f.add(key, args)
	}
	panic(fmt.Sprint("the fake has no command ", args))
}

func (f *fakeRedis) set(key string, args []any) any {
	if slices.Contains(args, any("nx")) {
		if _, ok := f.texts[key]; ok {
			return false
		}
	}
	f.texts[key] = fmt.Sprint(args[2])
	if b, ok := args[2].([]byte); ok {
		f.texts[key] = string(b)
	}
	for i, a := range args {
		switch a {
		case "ex":
			f.until[key] = f.now + 1000*msOf(args[i+1])
		case "px":
			f.until[key] = f.now + msOf(args[i+1])
		}
	}
	if slices.Contains(args, any("nx")) {
		return true
	}
	return "OK"
}

func (f *fakeRedis) add(key string, args []any) any {
	i := slices.Index(args, any("*"))
	values := map[string]any{}
	for i++; i+1 < len(args); i += 2 {
		values[args[i].(string)] = fmt.Sprint(args[i+1])
	}
	f.last = max(f.last+1, (f.now-f.behind)*1000)
	id := strconv.FormatInt(f.last, 10) + "-0"
	limit, _ := strconv.Atoi(fmt.Sprint(args[slices.Index(args, any("maxlen"))+2]))
	all := append(f.streams[key], redis.XMessage{ID: id, Values: values})
	f.streams[key] = all[max(0, len(all)-limit):]
	return id
}

func (f *fakeRedis) read(key string, after int64, count int) any {
	all := f.streams[key]
	from, _ := slices.BinarySearchFunc(all, after, func(m redis.XMessage, after int64) int { return cmp.Compare(idOf(m.ID), after+1) })
	if all = all[from:]; len(all) == 0 {
		return nil
	}
	return slices.Clone(all[:min(len(all), count)])
}

func idOf(id string) int64 {
	head, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(head, 10, 64)
	return n
}

func msOf(v any) int64 {
	n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	return n
}

// clock is the time of the fake, for a Fleet.
func (f *fakeRedis) clock() time.Time { return time.UnixMilli(f.now) }
