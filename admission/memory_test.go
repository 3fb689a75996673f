package admission

import "testing"

// TestMemoryOfWindows: memoryHolds is the inverse of memory, for short and long sequences.
func TestMemoryOfWindows(t *testing.T) {
	for _, v := range []ledger{{kvTokens: 5000}, {kvTokens: 5000, windowTimes: 3, windowTokens: 200}, {kvTokens: 500, windowTimes: 3, windowTokens: 200}} {
		for sequences := 1; sequences < 9; sequences++ {
			n := v.memoryHolds(sequences)
			if v.memory(n, sequences) > v.kvTokens || v.memory(n+1, sequences) <= v.kvTokens {
				t.Errorf("%+v: %d tokens of %d sequences take %d", v, n, sequences, v.memory(n, sequences))
			}
		}
	}
}
