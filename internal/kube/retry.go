package kube

// tries bounds the rounds of a compare-and-swap. Each lost round is another writer's success.
const tries = 10

// Retry calls try, which reads an object and writes it, until it succeeds or its error is not one
// that again accepts. It returns the last error.
//
// client-go's retry.OnError and retry.RetryOnConflict are not used, because they return nil if try
// returns the error of a context that has ended.
func Retry(again func(error) bool, try func() error) error {
	for range tries - 1 {
		if err := try(); !again(err) {
			return err
		}
	}
	return try()
}
