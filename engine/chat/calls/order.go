package calls

import (
	"bytes"
	"encoding/json"
)

// propertyNames returns the names of a schema's properties in their order.
func propertyNames(data json.RawMessage) []string {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil
		}
		if key == "properties" {
			return objectKeys(d)
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return nil
		}
	}
	return nil
}

// objectKeys returns the keys of the object that d is before.
func objectKeys(d *json.Decoder) (names []string) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return names
		}
		name, _ := key.(string)
		names = append(names, name)
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return names
		}
	}
	return names
}
