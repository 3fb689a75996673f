package shared

import (
	"os"
	"testing"
	"time"

	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/storetest"
)

// What a replica wrote down for another reader may be older than the place from which a
// newcomer reads the log.
func TestOldBlocksAreNotTaken(t *testing.T) {
	m, err := hitmap.NewMap(16)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Time{}
	r := &replica{name: "b"}
	r.heard(m, mark{id: "x", epoch: 7, batch: 2, number: 1}.before(""), now)
	r.restore(m, &batch{epoch: 7, number: 1, changes: added(1).Changes})
	if r.synced {
		t.Fatal("batch 2 was sent before the log was read, and blocks as of batch 1 were taken")
	}
	r.restore(m, &batch{epoch: 7, number: 2, changes: added(1, 2).Changes})
	if !r.synced || m.Len() != 2 {
		t.Fatalf("blocks as of the last batch were not taken: %+v", r)
	}

	// The report of one round trip names batch 3; the log of the next must have it.
	r.heard(m, mark{id: "x", epoch: 7, batch: 3, number: 2}.before(""), now)
	if r.read(m); !r.synced {
		t.Fatal("the log may not have been read so far")
	}
	if r.read(m); r.synced {
		t.Fatal("a batch that never came was not missed")
	}
}

// A replica whose blocks change all the time is known to a newcomer too.
func TestANewcomerKnowsABusyReplica(t *testing.T) {
	server := storetest.Start(t, os.Getenv("FOREBAY_TEST_REQUIRE"))
	a := open(t, options(server.Address, "a"))
	a.Follow(added(1))
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for hash := uint64(10); ; hash++ {
			select {
			case <-quit:
				return
			default:
				a.Follow(added(hash))
				a.Follow(evicted(hash))
				time.Sleep(time.Millisecond)
			}
		}
	}()
	c := open(t, options(server.Address, "c"))
	eventually(t, "c knows what a holds", func() bool { return holds(c, "[{a 1}]", 1) })
	close(quit)
	<-ended
}
