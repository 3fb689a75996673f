package model

// KernelClass is a kind of work in a step.
type KernelClass uint8

// The classes. Those of the last group are not the model's work: who calls
// Forward counts them with the same Timer.
const (
	KernelEmbed    KernelClass = iota // embeddings, and the angles of positions
	KernelNormRope                    // residual sums, norms, rope, and writing keys and values to their pages
	KernelQKV                         // projections to queries, keys and values
	KernelAttentionPrefill
	KernelAttentionDecode
	KernelOutput // attention's output projection
	KernelMLP    // the feed-forward layer, experts too
	KernelLogits

	KernelSampling
	KernelMask   // which tokens a grammar allows
	KernelKVCopy // copying pages

	KernelClassCount
)

var kernelNames = [KernelClassCount]string{
	KernelEmbed: "embed", KernelNormRope: "norm_rope", KernelQKV: "qkv",
	KernelAttentionPrefill: "attention_prefill", KernelAttentionDecode: "attention_decode",
	KernelOutput: "output", KernelMLP: "mlp", KernelLogits: "logits",
	KernelSampling: "sampling", KernelMask: "mask", KernelKVCopy: "kv_copy",
}

// String returns the class's stable name.
func (k KernelClass) String() string {
	if k < KernelClassCount {
		return kernelNames[k]
	}
	return "unknown"
}
