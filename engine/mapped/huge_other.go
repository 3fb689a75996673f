//go:build !linux

package mapped

func adviseHuge([]byte) {}
