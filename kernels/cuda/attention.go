package cuda

// The attention kernels as a launch sees them; attention.cu, attention_row.cu and
// attention_prompt.cu have the same numbers.
const (
	AttendThreads = 128
	SplitTokens   = 512 // positions of a split of the context
	AttendHeads   = 16  // query heads of a block of attend and attend_splits
	HeadDimMax    = 256

	TurnNeighbours = 1 // of place, as pages.cu has them
	TurnNormLast   = 2

	tileRows, piece, stagedPositions = 16, 64, 16
	scoreWords                       = piece + 8
	promptNumbers                    = 128 // of a head, of which a warp has the sums
)

func queryWords(headDim int) int { return (headDim+15)/32*32 + 16 }

// AttendShared is the shared memory of a block of attend and attend_splits, in bytes.
func AttendShared(headDim int) int { return 4 * tileRows * (queryWords(headDim) + 2*scoreWords) }

// PromptRows is how many rows a block of attend_prompt has; each is a token and a query head.
func PromptRows(headDim int) int {
	if headDim > promptNumbers {
		return AttendThreads / 32 / 2 * tileRows
	}
	return AttendThreads / 32 * tileRows
}

// PromptShared is the shared memory of a block of attend_prompt, in bytes.
func PromptShared(headDim int) int {
	values := (headDim+31)/32*32 + 8
	return 4 * (PromptRows(headDim)*queryWords(headDim) + stagedPositions*max(queryWords(headDim), values) + 2*piece + promptNumbers/2*AttendThreads)
}

// PromptTokens is how many tokens a block of attend_prompt has, where so many query heads share
// a KV head.
func PromptTokens(headDim, group int) int { return max(1, PromptRows(headDim)/group) }
