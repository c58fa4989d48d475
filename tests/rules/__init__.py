"""The rules for the answers of filters, as pure logic: what a history of calls may contain."""
