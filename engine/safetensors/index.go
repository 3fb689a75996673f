package safetensors

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/forebay-io/forebay/engine/mapped"
)

// indexBytesMax bounds an index: it has one short line for each tensor.
const indexBytesMax = 16 << 20

// readIndex reads which file has a tensor.
func readIndex(path string) (map[string]string, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open index of weights: %w", err)
	}
	defer m.Close()
	if len(m.Data) > indexBytesMax {
		return nil, fmt.Errorf("%s: has %d bytes; allowed are %d", path, len(m.Data), indexBytesMax)
	}
	return parseIndex(path, m.Data)
}

func parseIndex(path string, data []byte) (map[string]string, error) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%s: is not an index of weights: %w", path, err)
	}
	if len(index.WeightMap) == 0 || len(index.WeightMap) > tensorsMax {
		return nil, fmt.Errorf("%s: weight_map has %d tensors; allowed are 1 to %d", path, len(index.WeightMap), tensorsMax)
	}
	for tensor, file := range index.WeightMap {
		if strings.ContainsAny(file, `/\`+"\x00") || !strings.HasSuffix(file, ".safetensors") {
			return nil, fmt.Errorf("%s: weight_map has tensor %q in %q; allowed are names of .safetensors files in the same folder", path, tensor, file)
		}
	}
	return index.WeightMap, nil
}
