package cost

import "time"

// Room is the rule for how much prefill one step computes beside the decode rows
// of level 0. The composer of steps follows it, and so does admission, which gives
// the engine no more prefill than the next step has room for: what is dispatched
// begins.
type Room struct {
	Budget    time.Duration // of a step with prefill while rows decode; 0 is no bound
	TokensMin int           // prefill of a step whose budget is spent; at least 1 is computed
	TokensMax int           // of a step, decode rows included
}

// PatientBudgets is the number of budgets that a step may take when no decode row
// waits for its end: larger steps read the weights less often.
const PatientBudgets = 4

// NS returns the time for prefill, in nanoseconds, of a step with a time budget of
// budgetNS of which decode rows take rowsNS.
func (r Room) NS(c *Cost, rowsNS, budgetNS float64) float64 {
	return max(budgetNS-rowsNS, c.ChunkNS(max(1, r.TokensMin), 0))
}

// Tokens returns the prompt tokens without context that the next step has room for
// beside rows: TokensMax while no cost is known.
func (r Room) Tokens(c *Cost, rows Load) int {
	if !c.Known() || r.Budget == 0 {
		return max(1, r.TokensMax-rows.DecodeRows)
	}
	budget := float64(r.Budget)
	if rows.DecodeRows == 0 {
		budget *= PatientBudgets
	}
	return max(1, min(c.TokensIn(r.NS(c, c.StepNS(rows), budget), 0), r.TokensMax-rows.DecodeRows))
}
