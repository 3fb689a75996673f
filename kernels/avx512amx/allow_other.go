//go:build !(linux && amd64) || purego

package avx512amx

// Allow says that the functions here may not be called: how to ask other systems is not known here.
func Allow() bool { return false }
