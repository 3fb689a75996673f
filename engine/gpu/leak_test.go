//go:build cuda

package gpu

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/sample"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// stepsVar is how many steps TestManyStepsLeaveNothing takes.
const stepsVar = "FOREBAY_TEST_GPU_STEPS"

// TestManyStepsLeaveNothing: steps of every shape, with samples, copies of pages and rows, take
// no more memory of the device after many of them than after the first ones, and no graphs
// beyond those of their shapes. The Go heap keeps nothing either.
func TestManyStepsLeaveNothing(t *testing.T) {
	steps := 300
	if text := os.Getenv(stepsVar); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	d := openDevice(t)
	r := read(t, shared(t, "arch", "llama-gqa-tied.gguf"))
	const sequences = 6
	m := load(t, r.file, model.Options{ContextTokens: 64, PageTokens: 16, Pages: 4*sequences + 1, BatchTokensMax: 64, KVType: kernels.KVF16, Device: d})
	random, vocab := rand.New(rand.NewPCG(10, 0)), m.Config().Vocab
	o := wire.Options{Temperature: 1, TopP: 0.9, RepetitionPenalty: 1.1}
	sampler := sample.New(kernels.Best(), &o, 0, vocab)
	sampler.Prompt(r.IDs)
	lengths, draws := make([]int, sequences), make([]model.DeviceDraw, 0, sequences)
	step := func() {
		var chunks []model.Chunk
		draws = draws[:0]
		for s := range sequences {
			n := 1
			if random.IntN(4) == 0 {
				n += random.IntN(8)
			}
			if lengths[s]+n > 60 {
				lengths[s] = 0
			}
			if random.IntN(3) == 0 {
				continue
			}
			pages := make([]int32, 4)
			for i := range pages {
				pages[i] = int32(4*s + i)
			}
			stay := random.IntN(2) == 0
			if stay {
				draw := model.DeviceDraw{Row: len(chunks), Tops: random.IntN(3) - 1}
				sampler.Plan(&draw.Draw)
				draws = append(draws, draw)
			}
			chunks = append(chunks, model.Chunk{Tokens: r.IDs[lengths[s]%8:][:n], Start: lengths[s], Pages: pages, Logits: 1, Stay: stay})
			lengths[s] += n
		}
		if len(chunks) == 0 {
			return
		}
		m.Forward(chunks)
		if len(draws) > 0 {
			m.Sample(draws, vocab)
			sampler.Finish(&draws[0].Draw, &draws[0].Rest)
			m.Row(draws[0].Row)
		}
		m.CopyPage(4*sequences, random.Int32N(4*sequences))
	}
	free := func() (device int64, heap uint64) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := d.cuda.Bind()
		if err == nil {
			device, err = d.cuda.FreeBytes()
		}
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return device, stats.HeapAlloc
	}
	for range min(steps, 100) {
		step()
	}
	device, heap := free()
	for range steps {
		step()
	}
	deviceAfter, heapAfter := free()
	if deviceAfter != device {
		t.Errorf("%d steps: the device's free memory went from %d to %d bytes", steps, device, deviceAfter)
	}
	if heapAfter > heap+1<<20 {
		t.Errorf("%d steps: the heap went from %d to %d bytes", steps, heap, heapAfter)
	}
	if n := m.DeviceGraphs(); n > sequences {
		t.Errorf("%d graphs for steps of up to %d rows", n, sequences)
	}
}
