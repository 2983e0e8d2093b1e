package danm

// PauseAnnotation on a network makes the cleaner release nothing of it: no
// endpoint, no bit. Living pods are looked after all the same, which includes
// setting their bits again. "false" and no value mean no pause; every other
// value does, because whoever misspells "true" means it.
const PauseAnnotation = "danm-cleaner.danm.io/pause"

// IsPaused tells whether the network carries PauseAnnotation.
func (n *Network) IsPaused() bool {
	value := n.Annotations[PauseAnnotation]
	return value != "" && value != "false"
}
