//go:build unix && !linux

package model

func keepSmallPages([]byte) {}
